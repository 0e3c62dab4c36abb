#!/bin/bash
# A lease of a living process costs nothing on a store that nobody else changes: the daemon sleeps, and the lease is shown
# as if it were renewed every third of its TTL.  When its owner dies, its term starts.
#
# E2E_LEASES=1000000 takes so many (default 2000).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

LEASES=${E2E_LEASES:-2000}
STORE=$TEST_DIR/store
mkdir -m 700 "$STORE"

remount() {
    local point=$MNT
    mount_index "$point"
    end_process "$DAEMON"
    mount_daemons[INDEX]=
    mount_at "$point" "local:$STORE" "ttl=${1:-3}"
}

mount_local "$STORE" ttl=3
actor A
actor B

it "nobody wakes for the leases of a living process"
ASK_LIMIT=200 says A "[acquire('l%d' % i) for i in range($LEASES)] and None" ok
expect exists "l$((LEASES - 1))"
pause 2 # the owner is settled after a second
before=$(wakeups)
pause 10
expect_is $(($(wakeups) - before)) 0 wakeups

it "it is shown as if it were renewed every third of its ttl, and held for as long as its owner lives"
expect exists l0
for _ in 1 2 3 4 5; do
    expect_between 1950 "$(remaining l0)" 3000 "milliseconds left"
    expect_between -1 $(($(date +%s) - $(stat -c %Y "$MNT/l0"))) 2 "seconds since it was renewed"
    expect_between 1950 "$(milliseconds "$(awk '$1 == "l0" { print $9 }' "$MNT/.leasefs/locks")")" 3000 "milliseconds in the table"
    pause 0.4
done
says B 'acquire("l0")' EEXIST

it "an owner that touches it again renews it, and a term that is fixed runs"
says A 'utime("l1"); put("l2", "ttl", "500ms"); put("l3", "ttl", "500ms"); put("l3", "ttl", "auto")' ok
expect eventually 2 absent l2
pause 1
expect exists l1
expect exists l3

it "when its owner dies, its term starts, and one of which a descendant has a file open goes on"
says B 'acquire("dies"); acquire("open"); f = op("open", "RDWR")' ok
says B 'os.fork() or (time.sleep(8), os._exit(0))' '*'
pause 4.5
now
died=$NOW
end_actor B
expect exists dies
until_time $((died + 2500))
expect exists dies
expect eventually 2 absent dies
expect_between 2900 "$(now && echo $((NOW - died)))" $((3000 + SLACK)) "milliseconds"

it "after a restart the lease of a living owner goes on, and that of one that died meanwhile has a full term from then on"
actor C
says C 'acquire("c")' ok
pause 1.5
kill -9 "$DAEMON"
end_actor C
pause 3.5
remount
now
started_at=$NOW
expect exists c
expect exists l0
until_time $((started_at + 2000))
expect exists c
expect eventually 3 absent c
pause 1
before=$(wakeups)
pause 3
expect_is $(($(wakeups) - before)) 0 wakeups
expect exists l0

it "a lease whose owner died before the restart ends when it would have without it"
actor E
says E 'acquire("e")' ok
pause 1.5
end_actor E
pause 1.5
remount
expect exists e
expect eventually 3 absent e
end_actor A
expect eventually 10 absent l0

finish
