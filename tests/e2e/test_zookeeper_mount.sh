#!/bin/bash
# Mounts of ZooKeeper servers that cannot work are refused in a line that says what to do; so are tickets of a directory
# whose server has run out of numbers.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"

refused() { # WHY [OPTIONS [URI]]: as a regular expression
    local said status=0
    said=$(timeout -s KILL 60 "$LEASEFS" -f -o "state=$TEST_DIR/state${2:+,$2}" "${3:-$ZOOKEEPER_URI}" "$TEST_DIR/refused" 2>&1) || status=$?
    expect_is "$status" 1 "exit status"
    expect_re "$said" "$1" "the error"
    expect_is "$(wc -l <<<"$said")" 1 "lines"
}
connected() { grep -q '^state: connected$' "$MNT/.leasefs/status"; }
credentials() { (umask 077 && echo "$1" >"$TEST_DIR/$2"); }

zookeeper_start
zookeeper_root locks
mkdir "$TEST_DIR/refused"
credentials user:secret right
credentials user:guess wrong

it "nodes of a user are refused to who is not that user"
mount_backend "$ZOOKEEPER_URI" "credentials=$TEST_DIR/right"
expect touch "$MNT/his"
refused 'no right to make nodes in it: .*credentials=FILE'
refused 'no right to make nodes in it: .*credentials=FILE' "credentials=$TEST_DIR/wrong"
expect exists his

it "a host that has no name, and an address that is none, are refused"
refused 'nosuchhost.invalid: ' '' zookeeper://nosuchhost.invalid/locks
refused 'has no host' '' zookeeper:///locks
refused 'has a chroot that is no path of names' '' zookeeper://127.0.0.1/a/../b
refused 'option prefix= is only for redis://' prefix=a:

it "servers that give no session are refused, unless in the background: then it is there when they are"
end_process "$ZOOKEEPER_PID"
refused 'no ZooKeeper server gave a session within 10 seconds: .*background'
mount_backend "$ZOOKEEPER_URI" "background,credentials=$TEST_DIR/right"
expect_not connected
expect zookeeper_launch
expect eventually 20 connected
expect touch "$MNT/later"

it "a directory that has given all of its numbers takes no tickets until it is made anew"
ticket() { (exec 9<>"$MNT/full/job-") 2>&1; }
end_process "$ZOOKEEPER_PID"
expect "$PYTHON" "$E2E_DIR/full_directory.py" "$TEST_DIR/zookeeper" "$ZOOKEEPER_ROOT/full"
expect zookeeper_launch
expect eventually 20 connected
expect_re "$(ticket)" 'No space left on device'
expect_re "$(ticket)" 'No space left on device'
expect_is "$(ls "$MNT/full")" ""
expect rmdir "$MNT/full"
expect mkdir "$MNT/full"
expect ticket

it "a lock of a killed daemon shows on another mount how long the store may still keep it, whatever its TTL"
zookeeper_root left
mount_backend "$ZOOKEEPER_URI" ttl=10
OTHER=$MNT # its session lasts for 22 s
mount_backend "$ZOOKEEPER_URI" ttl=2 # its session lasts for 6 s
actor D
says D 'acquire("renewed")' ok
pause 1.5
says D 'acquire("fixed"); os.setxattr(path("fixed"), "user.lease.ttl", b"2")' ok
says D 'acquire("young")' ok
expect_between 1 "$(on "$OTHER" remaining fixed)" 2000
expect_between 1 "$(on "$OTHER" remaining renewed)" 2000
crash "$MNT"
now
killed=$NOW
least=999999 earliest=999999 latest=0 # earliest, latest: the end that is shown once a heartbeat is missing
while [ -n "$(ls "$OTHER")" ]; do
    for name in renewed fixed young; do
        now
        left=$(on "$OTHER" attribute "$name" remaining) || continue
        left=$(milliseconds "$left")
        ((least = left < least ? left : least, shown = NOW - killed + left))
        if ((NOW > killed + 2500)); then
            ((earliest = shown < earliest ? shown : earliest, latest = shown > latest ? shown : latest))
        fi
    done
    pause 0.1
done
now
say "held for $((NOW - killed)) ms; least shown: $least ms; shown as the end: after $earliest to $latest ms"
expect test "$least" -gt 0
expect_between 4000 $((NOW - killed)) "$earliest"
expect test "$latest" -lt 10000
end_actor D

# --- leaserun ---

LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun}
it "leaserun warns of a -t that is longer than the session lasts, and ends its command in time when the daemon hangs"
zookeeper_root long
mount_backend "$ZOOKEEPER_URI" ttl=4
expect_re "$("$LEASERUN" -n -t 10m "$MNT/l" -- true 2>&1)" 'the store keeps a lock for [0-9.]+s when it cannot be renewed, not for the 600s'
expect_is "$("$LEASERUN" -n "$MNT/l" -- true 2>&1)" ""
start "$LEASERUN" -t 10m -k 1 "$MNT/l" -- sh -c "echo x >'$TEST_DIR/runs'; exec sleep 60" 2>/dev/null
expect eventually 10 [ -s "$TEST_DIR/runs" ]
kill -STOP "$DAEMON"
expect eventually 8 gone "$STARTED" # the session of a mount with ttl=4 lasts for 10 s
kill -CONT "$DAEMON"

finish
