#!/bin/bash
# Two hosts, that is two mounts of one Redis server, each with a network of its own, while everything between a process
# and the store breaks: no two that exclude each other hold at the same moment, a file that compares fencing tokens
# takes no stale one, and a file that compares nothing loses updates under the same faults.
#
# A fault is one of: the network of a host swallows, resets, refuses, cuts a reply, delays or loses; the daemon is
# stopped, or killed and mounted again; the server is stopped, killed or restarted with what it has on disk, forgets its
# scripts, or ends connections; and, beside all these, processes are stopped and killed.  Locks may end by a fault that
# is longer than the TTL, and not by a shorter one.
#
# The full size, 240 faults and those of the processes, is
#
#     E2E_FULL=1 tests/e2e/test_history_redis.sh
#
# Environment: see history.sh.

E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+1200}}
[ -n "$E2E_LIMIT" ] || unset E2E_LIMIT
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=history.sh
. "$(dirname "$0")/history.sh"

# A server that stays away for a moment is asked again before a TTL of one second is over.
OPTIONS=ttl=1s,timeout=800ms,command_timeout=400ms,connect_timeout=400ms AGAIN=$OPTIONS
uri() { echo "redis://127.0.0.1:$1"; }

# --- faults: each is over, and mended, when its function returns ---

host_cut_in_reply() { net "$1" cut $((RANDOM % 40)) EVALSHA; short; }
host_lossy() { net "$1" loss both 0.0$((RANDOM % 9 + 1)); long; net "$1" clear; net "$1" drop; }
server_paused() { redis_pause; either; redis_resume; }
server_restarted() { redis_restart; }
server_killed() { redis_kill; redis_again; }
server_forgets_scripts() { redis_cli SCRIPT FLUSH >/dev/null; }
server_ends_pubsub() { redis_cli CLIENT KILL TYPE pubsub >/dev/null; }
server_ends_normal() { redis_cli CLIENT KILL TYPE normal >/dev/null 2>&1; }

KINDS=(host_swallowed host_refused host_reset host_cut_in_reply host_delayed host_lossy host_breaking host_stopped
    host_killed server_paused server_restarted server_killed server_forgets_scripts server_ends_pubsub
    server_ends_normal both_swallowed host_swallowed host_stopped host_refused host_killed)

# The server has forgotten, both mounts know it, and it grants what is new again.
opened() {
    local side
    redis_key lfs:v:lfs:/ || return 1
    for side in A B; do
        ! grep -qE '^grace period: ' "${at[$side]}/.leasefs/status" || return 1
    done
    [[ $(redis_cli GET lfs:v:lfs:/) == *' o '* ]]
}

redis_start --appendonly yes --appendfsync always

it "$FAULTS faults of two hosts and their server (seed $SEED): no validity overlaps, no token goes back, what is left comes free"
history_of "$REDIS_PORT"
expect reported ' [1-9][0-9]* at the full width of a queue'

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
