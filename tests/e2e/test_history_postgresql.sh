#!/bin/bash
# Two hosts, that is two mounts of one PostgreSQL database, each with a network of its own, while everything between a
# process and the store breaks: no two are told for the same moment that they hold what excludes each other, a file that
# compares fencing tokens takes no stale one, and a file that compares nothing loses updates under the same faults.
#
# A fault is one of: the network of a host swallows, resets, refuses, delays or breaks; the daemon is stopped, or killed and
# mounted again; the server is stopped, killed or restarted, or one of its sessions is killed or ended; it dies, and a
# synchronous standby takes over, or one that lacks the last second; its disk is full; a transaction stays open that keeps a
# name; and, beside all these, processes are stopped and killed.
#
# The full size is
#
#     E2E_FULL=1 tests/e2e/test_history_postgresql.sh
#
# Environment: as for test_history_redis.sh; STRESS_COMMIT, the server's synchronous_commit (on).

E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+3600}}
E2E_LIMIT=${E2E_LIMIT:-600} # a server that was killed recovers for seconds
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"

FAULTS=${STRESS_FAULTS:-20}
[ -z "${E2E_FULL:-}" ] || FAULTS=${STRESS_FAULTS:-240}
SEED=${STRESS_SEED:-$((SRANDOM % 1000000))}
PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/faults
[ -x "$PROGRAM" ] || skip_all "no program faults: make check builds it, or set STRESS_PROGRAMS"
RANDOM=$((SEED % 32768))

OPTIONS=ttl=1s
declare -A port=() at=() daemon=()

# host A|B: a network, and a mount behind it.
host() {
    partner "proxy$1" "$PYTHON" -S -E "$E2E_DIR/../proxy.py" --ids --seed "$SEED" --to "127.0.0.1:$POSTGRESQL_PORT"
    port[$1]=$(ask "proxy$1" port)
    mount_backend "$(uri "$1")" "$OPTIONS"
    at[$1]=$MNT daemon[$1]=$DAEMON
}
uri() { echo "postgresql://postgres@127.0.0.1:${port[$1]}/postgres"; }
net() { # HOST COMMAND…
    local answer
    answer=$(ask "proxy$1" "${*:2}")
    [ "$answer" = ok ] || fail "the proxy of $1: ${*:2}: $answer"
}
mount_again() { # HOST
    crash "${at[$1]}"
    mount_at "${at[$1]}" "$(uri "$1")" "$OPTIONS,background"
    daemon[$1]=$DAEMON
}

# --- faults: each is over, and mended, when its function returns ---

short() { pause "0.$((RANDOM % 3 + 1))"; }
long() { pause "1.$((RANDOM % 8 + 2))"; }       # than the TTL
either() { if ((RANDOM % 2)); then short; else long; fi; }
sessions() { sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasefs' ORDER BY random() LIMIT 1"; }
again() { until postgresql_launch "${SERVER[@]}"; do pause 0.1; done; }

host_swallowed() { net "$1" pause; either; net "$1" resume; }
host_refused() { net "$1" refuse on; net "$1" drop; either; net "$1" refuse off; }
host_reset() { net "$1" drop; }
host_delayed() { net "$1" delay both $((RANDOM % 150)) 50; long; net "$1" clear; }
host_breaking() { net "$1" break both 0.$((RANDOM % 3 + 1)); short; net "$1" clear; }
host_stopped() { kill -STOP "${daemon[$1]}"; either; kill -CONT "${daemon[$1]}"; }
host_killed() { mount_again "$1"; }
server_paused() {
    local -a all
    mapfile -t all < <(pgrep -P "$POSTGRESQL_PID"; echo "$POSTGRESQL_PID")
    kill -STOP "${all[@]}"
    either
    kill -CONT "${all[@]}"
}
server_restarted() { kill -INT "$POSTGRESQL_PID"; eventually 30 gone "$POSTGRESQL_PID"; again; }
server_killed() { end_process "$POSTGRESQL_PID"; again; }
# What was confirmed is on the standby.
failed_over_synchronous() {
    standby_start || return
    sql "ALTER SYSTEM SET synchronous_standby_names = '*'" "SELECT pg_reload_conf()" >/dev/null
    eventually 30 standby_is_synchronous
    either
    end_process "$POSTGRESQL_PID"
    standby_promote "${SERVER[@]}"
}
# The standby lacks what was confirmed last.
failed_over_asynchronous() {
    standby_start || return
    standby_detach
    either
    end_process "$POSTGRESQL_PID"
    standby_promote "${SERVER[@]}"
}
# Its own small file system is.  It may end of that.
disk_full() {
    local filler=$POSTGRESQL_SOCKETS/filler
    mountpoint -q "$POSTGRESQL_SOCKETS" || return
    dd if=/dev/zero of="$filler" bs=64K status=none 2>/dev/null
    long
    rm -f "$filler"
    pause 0.5
    if gone "$POSTGRESQL_PID"; then again; fi
}
session_ended() { sql "SELECT pg_terminate_backend(${1:+$(sessions)})" >/dev/null; }
session_killed() { kill -9 "$(sessions)" 2>/dev/null; }
name_kept() {
    timeout 2 psql -Xq -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres -c BEGIN \
        -c "SELECT pg_advisory_xact_lock(1818322803, hashtext(encode(path, 'escape'))) FROM leasefs.ticket WHERE slot = 0 ORDER BY random() LIMIT 1" \
        -c 'SELECT pg_sleep(1)' -c ROLLBACK >/dev/null 2>&1
}
both_swallowed() { net A pause; net B pause; either; net A resume; net B resume; }

KINDS=(host_swallowed host_refused host_reset host_delayed host_breaking host_stopped host_killed server_paused server_restarted
    server_killed session_ended session_killed name_kept both_swallowed failed_over_synchronous failed_over_asynchronous disk_full host_swallowed host_stopped host_refused host_killed)

# inject COUNT: that many, of all kinds in turn, in an order by chance.
inject() {
    local i kind side
    local -A counts=()
    local -a order=()
    for ((i = 0; i < $1; i++)); do
        [ ${#order[@]} -gt 0 ] || mapfile -t order < <(for kind in "${KINDS[@]}"; do echo "$RANDOM $kind"; done | sort -n)
        kind=${order[0]#* }
        order=("${order[@]:1}")
        side=A
        ((RANDOM % 2)) && side=B
        "$kind" "$side"
        counts[$kind]=$((${counts[$kind]:-0} + 1))
        pause "0.$((RANDOM % 4 + 1))"
    done
    for kind in "${!counts[@]}"; do say "$kind: ${counts[$kind]}"; done
}
mend() {
    local side
    for side in A B; do
        net "$side" clear
        net "$side" drop
        expect eventually 60 timeout 5 ls "${at[$side]}" >/dev/null
    done
}

# run_history OPTION…: in the background.
run_history() {
    rm -rf "$TEST_DIR/files"
    mkdir "$TEST_DIR/files"
    start "$PROGRAM" --clients "${STRESS_CLIENTS:-16}" --names "${STRESS_NAMES:-6}" --seed "$SEED" --ttl 1000 "$@" \
        "$TEST_DIR/files" "${at[A]}" "${at[B]}" >"$TEST_DIR/history" 2>&1
    HISTORY=$STARTED
}
# end_history: sets STATUS.
end_history() {
    mend
    STATUS=0
    kill -TERM "$HISTORY"
    wait "$HISTORY" || STATUS=$?
    sed 's/^/# /' "$TEST_DIR/history" | head -120
}
reported() { grep -qE "$1" "$TEST_DIR/history"; }

# history_of SERVER-OPTION…
history_of() {
    SERVER=("$@" -c max_wal_size=64MB -c min_wal_size=32MB)
    mkdir "$TEST_DIR/pg"
    [ "$(id -u)" != 0 ] || mount -t tmpfs -o size=300m tmpfs "$TEST_DIR/pg" || say "no file system of its own, so disk_full does nothing"
    postgresql_start "${SERVER[@]}"
    host A
    host B
    for width in 1 2; do
        mkdir "${at[A]}/q$width"
        setfattr -n user.lease.width -v "$width" "${at[A]}/q$width"
    done
    run_history --full
    for side in A B; do # that will certainly bite
        net "$side" pause
        pause 1.6
        net "$side" resume
        pause 0.5
    done
    inject $((FAULTS - 2))
    end_history
}

it "$FAULTS faults of two hosts and their server (seed $SEED): no validity overlaps, no token goes back, what is left comes free"
history_of -c "synchronous_commit=${STRESS_COMMIT:-on}"
expect test "$STATUS" -ne 1
expect test "$STATUS" -ne 3
expect reported '^0 overlaps, 0 fencing tokens that went back'
expect reported '[1-9][0-9]* kills, [1-9][0-9]* stops'

it "guarded files took no stale token, and lost no update"
expect reported ' [1-9][0-9]* writes accepted, .* 0 updates lost, 0 refused to holders, 0 tokens used twice'

finish
