#!/bin/bash
# Two hosts, that is two mounts of one Redis server, each with a network of its own, while everything between a process
# and the store breaks: no two are told for the same moment that they hold what excludes each other, a file that
# compares fencing tokens takes no stale one, and a file that compares nothing loses updates under the same faults.
#
# A fault is one of: the network of a host swallows, resets, refuses, cuts a reply, delays or loses; the daemon is
# stopped, or killed and mounted again; the server is stopped, killed or restarted with what it has on disk, forgets
# its scripts, or ends connections; and, beside all these, processes are stopped and killed.  What takes longer than
# the TTL makes locks end, what takes less must not matter.
#
# The full size, 240 faults and those of the processes, is
#
#     E2E_FULL=1 tests/e2e/test_history_redis.sh
#
# Environment: STRESS_FAULTS, how many (20; 240 with E2E_FULL); STRESS_CLIENTS, processes (16); STRESS_NAMES (6);
# STRESS_SEED; STRESS_PROGRAMS, the directory of the programs (default: tests/stress of the build directory).

E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+1200}}
[ -n "$E2E_LIMIT" ] || unset E2E_LIMIT
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

FAULTS=${STRESS_FAULTS:-20}
[ -z "${E2E_FULL:-}" ] || FAULTS=${STRESS_FAULTS:-240}
SEED=${STRESS_SEED:-$((SRANDOM % 1000000))}
PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/faults
[ -x "$PROGRAM" ] || skip_all "no program faults: make check builds it, or set STRESS_PROGRAMS"
RANDOM=$((SEED % 32768))

# A server that stays away for a moment is asked again before a TTL of one second is over.
OPTIONS=ttl=1s,timeout=800ms,command_timeout=400ms,connect_timeout=400ms
declare -A port=() at=() daemon=()

# host A|B: a network, and a mount behind it.
host() {
    partner "proxy$1" "$PYTHON" -S -E "$E2E_DIR/../proxy.py" --ids --seed "$SEED" --to "127.0.0.1:$REDIS_PORT"
    port[$1]=$(ask "proxy$1" port)
    mount_backend "redis://127.0.0.1:${port[$1]}" "$OPTIONS"
    at[$1]=$MNT daemon[$1]=$DAEMON
}
net() { # HOST COMMAND…
    local answer
    answer=$(ask "proxy$1" "${*:2}")
    [ "$answer" = ok ] || fail "the proxy of $1: ${*:2}: $answer"
}
mount_again() { # HOST
    crash "${at[$1]}"
    mount_at "${at[$1]}" "redis://127.0.0.1:${port[$1]}" "$OPTIONS"
    daemon[$1]=$DAEMON
}

# --- faults: each is over, and mended, when its function returns ---

short() { pause "0.$((RANDOM % 3 + 1))"; }
long() { pause "1.$((RANDOM % 8 + 2))"; }       # than the TTL
either() { if ((RANDOM % 2)); then short; else long; fi; }

host_swallowed() { net "$1" pause; either; net "$1" resume; }
host_refused() { net "$1" refuse on; net "$1" drop; either; net "$1" refuse off; }
host_reset() { net "$1" drop; }
host_cut_in_reply() { net "$1" cut $((RANDOM % 40)) EVALSHA; short; }
host_delayed() { net "$1" delay both $((RANDOM % 150)) 50; long; net "$1" clear; }
host_lossy() { net "$1" loss both 0.0$((RANDOM % 9 + 1)); long; net "$1" clear; net "$1" drop; }
host_breaking() { net "$1" break both 0.$((RANDOM % 3 + 1)); short; net "$1" clear; }
host_stopped() { kill -STOP "${daemon[$1]}"; either; kill -CONT "${daemon[$1]}"; }
host_killed() { mount_again "$1"; }
server_paused() { redis_pause; either; redis_resume; }
server_restarted() { redis_restart; }
server_killed() { redis_kill; redis_again; }
server_forgets_scripts() { redis_cli SCRIPT FLUSH >/dev/null; }
server_ends_pubsub() { redis_cli CLIENT KILL TYPE pubsub >/dev/null; }
server_ends_normal() { redis_cli CLIENT KILL TYPE normal >/dev/null 2>&1; }
both_swallowed() { net A pause; net B pause; either; net A resume; net B resume; }

KINDS=(host_swallowed host_refused host_reset host_cut_in_reply host_delayed host_lossy host_breaking host_stopped
    host_killed server_paused server_restarted server_killed server_forgets_scripts server_ends_pubsub
    server_ends_normal both_swallowed host_swallowed host_stopped host_refused host_killed)

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
        expect eventually 20 timeout 5 ls "${at[$side]}" >/dev/null
    done
}

# The server has forgotten, both mounts know it, and it grants what is new again.
opened() {
    local side
    redis_key lfs:v:lfs:/ || return 1
    for side in A B; do
        ! grep -qE '^grace period: ' "${at[$side]}/.leasefs/status" || return 1
    done
    [[ $(redis_cli GET lfs:v:lfs:/) == *' o '* ]]
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

redis_start --appendonly yes --appendfsync always
host A
host B
for width in 1 2; do # semaphores, whose waiters lose their place with their mount's connection
    mkdir "${at[A]}/q$width"
    setfattr -n user.lease.width -v "$width" "${at[A]}/q$width"
done

it "$FAULTS faults of two hosts and their server (seed $SEED): no validity overlaps, no token goes back, what is left comes free"
run_history
for side in A B; do # that will certainly bite
    net "$side" pause
    pause 1.6
    net "$side" resume
    pause 0.5
done
inject $((FAULTS - 2))
end_history
expect test "$STATUS" -ne 1
expect test "$STATUS" -ne 3
expect reported '^0 overlaps, 0 fencing tokens that went back'
expect reported '[1-9][0-9]* kills, [1-9][0-9]* stops'
expect reported ' [1-9][0-9]* of them beyond a width'

it "guarded files took no stale token, and lost no update"
expect reported ' [1-9][0-9]* writes accepted, .* 0 updates lost, 0 refused to holders, 0 tokens used twice'
expect reported ' [1-9][0-9]* with stale tokens refused'

it "files that compare nothing lost updates under the same faults"
expect reported '^unguarded files: [1-9][0-9]* of'

it "after a server that forgot all tokens still only grow, and guarded files take no stale one"
run_history --forgetful
for _ in {1..4}; do
    pause 0.7
    redis_cli FLUSHALL >/dev/null
    expect eventually 20 opened # nothing new is granted before
done
end_history
expect test "$STATUS" -ne 1
expect test "$STATUS" -ne 3
expect reported '^0 overlaps, 0 fencing tokens that went back'
expect reported ' [1-9][0-9]* writes accepted, .* 0 updates lost, .* 0 tokens used twice'

# --- what the history cannot tell of one ---

it "a holder that was stopped with its host for longer than the TTL knows that it lost the lock before it can use it"
MNT=${at[A]}
actor a
on "${at[B]}" actor b
says a 'f = op("stopped", "RDWR|CREAT"); flock(f, "EX")' ok
says a 'get(f, "state")' held
says b 'g = op("stopped", "RDWR|CREAT")' ok
says b 'flock(g, "EX|NB")' EAGAIN
kill -STOP "${actor_pid[a]}" "${daemon[A]}"
tell b 'flock(g, "EX")'
expect_is "$(hear b 10)" ok
kill -CONT "${actor_pid[a]}" "${daemon[A]}"
says a 'write(f, "mine")' ESTALE
says a 'get(f, "state")' lost
says a 'read(f)' ESTALE
says b 'get(g, "state")' held
says a 'flock(f, "EX|NB")' EAGAIN
says b 'flock(g, "UN")' ok
says a 'flock(f, "EX|NB")' ok
says a 'get(f, "state")' held
says a 'close(f)' ok

finish
