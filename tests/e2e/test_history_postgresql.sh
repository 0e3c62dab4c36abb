#!/bin/bash
# Two hosts, that is two mounts of one PostgreSQL database, each with a network of its own, while everything between a
# process and the store breaks: no two locks that exclude each other are granted for the same moment, a file that
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
# Environment: see history.sh; STRESS_COMMIT, the server's synchronous_commit (on).

E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+3600}}
E2E_LIMIT=${E2E_LIMIT:-600} # a server that was killed recovers for seconds
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
# shellcheck source=history.sh
. "$(dirname "$0")/history.sh"

OPTIONS=ttl=1s AGAIN=ttl=1s,background MEND_LIMIT=60
uri() { echo "postgresql://postgres@127.0.0.1:$1/postgres"; }

# --- faults: each is over, and mended, when its function returns ---

sessions() { sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasefs' ORDER BY random() LIMIT 1"; }
again() { until postgresql_launch "${SERVER[@]}"; do pause 0.1; done; }

server_paused() {
    local -a all
    mapfile -t all < <(pgrep -P "$POSTGRESQL_PID"; echo "$POSTGRESQL_PID")
    kill -STOP "${all[@]}"
    either
    kill -CONT "${all[@]}"
}
server_restarted() { kill -INT "$POSTGRESQL_PID"; eventually 30 gone "$POSTGRESQL_PID"; again; }
server_killed() { end_process "$POSTGRESQL_PID"; again; }
# The standby has all confirmed locks.
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

KINDS=(host_swallowed host_refused host_reset host_delayed host_breaking host_stopped host_killed server_paused server_restarted
    server_killed session_ended session_killed name_kept both_swallowed failed_over_synchronous failed_over_asynchronous disk_full host_swallowed host_stopped host_refused host_killed)

SERVER=(-c "synchronous_commit=${STRESS_COMMIT:-on}" -c max_wal_size=64MB -c min_wal_size=32MB)
mkdir "$TEST_DIR/pg"
[ "$(id -u)" != 0 ] || mount -t tmpfs -o size=300m tmpfs "$TEST_DIR/pg" || say "no file system of its own, so disk_full does nothing"
postgresql_start "${SERVER[@]}"

it "$FAULTS faults of two hosts and their server (seed $SEED): no validity overlaps, no token goes back, what is left comes free"
history_of "$POSTGRESQL_PORT" --full

it "guarded files took no stale token, and lost no update"
expect reported ' [1-9][0-9]* writes accepted, .* 0 updates lost, 0 refused to holders, 0 tokens used twice'

finish
