#!/bin/bash
# inotifywait at one host of what another host, or a client that is no mount, holds on the same Redis server.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
command -v inotifywait >/dev/null || skip_all "no inotifywait"

PROMPT=$((100 + SLACK)) # milliseconds

redis_start
mount_two ttl=900ms
A=$MOUNT_A B=$MOUNT_B
on "$A" actor a
on "$B" actor b

# At B; its pid is in WATCHER.
watch() { # NAME
    : >"$TEST_DIR/$1.err"
    inotifywait -e delete_self -t 20 "$B/$1" >"$TEST_DIR/$1.out" 2>"$TEST_DIR/$1.err" &
    WATCHER=$!
    started+=("$WATCHER")
    expect eventually 10 grep -q established "$TEST_DIR/$1.err"
}
# From T on.
heard() { # NAME LEAST MOST
    wait "$WATCHER" || fail "inotifywait $1: status $?"
    now
    expect_between "$2" $((NOW - T)) "$3" "milliseconds until the event"
    expect grep -q DELETE_SELF "$TEST_DIR/$1.out"
    expect_not [ -e "$B/$1" ]
}
silent() { expect_not grep -q DELETE_SELF "$TEST_DIR/$1.out"; }
calls() { # COMMAND: how often the server was asked that
    local line
    line=$(redis_cli INFO commandstats | tr -d '\r' | grep -F "cmdstat_$1:") || { echo 0; return; }
    line=${line#*calls=}
    echo "${line%%,*}"
}

it "a release at the other host is heard, however often the lease was renewed before"
says a 'acquire("lease")' ok
watch lease
before=$(calls "client|caching")
expect eventually 10 eval '[ "$(calls "client|caching")" -ge $((before + 3)) ]' # renewals, each looked at
silent lease
now
T=$NOW
says a 'rm("lease")' ok
heard lease 0 "$PROMPT"

it "so is the unlocking of a handle lock, and of one that is shared by two when the second has let go"
says a 'f = op("shared"); flock(f, "SH"); g = op("shared", "RDONLY"); flock(g, "SH")' ok
watch shared
says a 'flock(f, "UN")' ok
expect constantly 300 silent shared
now
T=$NOW
says a 'flock(g, "UN")' ok
heard shared 0 "$PROMPT"
says a 'close(f); close(g)' ok

it "so is the end of a lease whose term runs out, not before"
says a 'acquire("term"); put("term", "ttl", "2s")' ok
now
T=$NOW
watch term
heard term 1700 $((2000 + PROMPT))

it "so is a break"
says a 'acquire("broken")' ok
watch broken
now
T=$NOW
says a 'put("broken", "break", "1")' ok
heard broken 0 "$PROMPT"

it "so is a ticket of a queue that is given back, or leaves it, not one that is let in"
mkdir "$A/queue" "$TEST_DIR/queue"
says a 'p = op("queue/job-"); q = op("queue/job-"); s = op("queue/job-")' ok
for ticket in queue/job-000000000{1,2}; do expect [ -e "$B/$ticket" ]; done
watch queue/job-0000000000
now
T=$NOW
says a 'rm("queue/job-0000000000")' ok
heard queue/job-0000000000 0 "$PROMPT"
watch queue/job-0000000001
says a 'rm("queue/job-0000000002")' ok
expect constantly 1000 silent queue/job-0000000001 # renewed, and another has left
now
T=$NOW
says a 'rm("queue/job-0000000001")' ok
heard queue/job-0000000001 0 "$PROMPT"

it "a lock that goes on to who waits for it here stays"
says a 'f = op("next"); flock(f, "EX")' ok
says b 'g = op("next", "RDONLY")' ok
tell b 'flock(g, "EX")'
expect eventually 5 eval '[ "$(on "$A" attribute next waiters)" = 1 ]'
watch next
says a 'flock(f, "UN"); close(f)' ok
expect_is "$(hear b 5)" ok
expect constantly 300 silent next
now
T=$NOW
says b 'flock(g, "UN"); close(g)' ok # the kernel tells when nobody has it open
heard next 0 "$PROMPT"

it "a key that another client of the server has as its lock is heard of when it is deleted, and when it expires"
expect_is "$(redis_cli SET foreign token NX PX 60000)" OK
watch foreign
now
T=$NOW
expect_is "$(redis_cli DEL foreign)" 1
heard foreign 0 "$PROMPT"
expect_is "$(redis_cli SET foreign token NX PX 2000)" OK
now
T=$NOW
watch foreign
heard foreign 1700 $((2000 + PROMPT))

it "what nobody has looked up here costs the server nothing, nor does what has gone"
before=$(calls "client|caching")
says a 'acquire("unknown"); rm("unknown"); acquire("unknown2")' ok
expect constantly 1000 eval '[ "$(calls "client|caching")" = "$before" ]'
says a 'rm("unknown2")' ok

it "after the connection was lost what has gone meanwhile is heard of, too"
says a 'acquire("cut")' ok
watch cut
ids=$(redis_cli CLIENT LIST | sed -n 's/^id=\([0-9]*\) .*name=leasefs.*/\1/p')
now
T=$NOW
for id in $ids; do redis_cli CLIENT KILL ID "$id" >/dev/null; done
redis_cli DEL cut >/dev/null
heard cut 0 $((3000 + PROMPT))

finish
