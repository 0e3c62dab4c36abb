#!/bin/bash
# leaserun(1) with the options that fingers know from flock(1): -x, -c, -u, -F.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
mount_memory ttl=2

it "-x and -e hold it alone, as without; the last of -s and -x counts"
begin -s "$MNT/a" -- sh -c "echo \$\$ >'$TEST_DIR/shares'; exec sleep 60"
expect eventually 5 mark shares
gives 0 -n -x -s "$MNT/a" -- true
gives 1 -n -s -x "$MNT/a" -- true
gives 1 -n -s -e "$MNT/a" -- true
gives 1 -n --exclusive "$MNT/a" -- true
kill -TERM "$RUNNER"
ended 143
gives 0 -x "$MNT/a" -- getfattr --only-values -n user.lease.mode "$MNT/a"
said exclusive

it "-c gives a line to the shell, after the lock as in flock(1) or before it"
SHELL=/bin/sh gives 3 "$MNT/a" -c 'echo "$LEASE_NAME" | tr a-z A-Z; exit 3'
said "^${MNT^^}/A\$"
SHELL=/bin/sh gives 4 -c 'exit 4' "$MNT/a"
SHELL=/bin/sh gives 5 "$MNT/a" --command 'exit 5'
SHELL=/bin/sh gives 6 -l "$MNT/a" -c 'exit 6'
SHELL=$TEST_DIR/none gives 127 "$MNT/a" -c true
env -u SHELL "$LEASERUN" "$MNT/a" -c 'exit 7'
expect_is $? 7

it "-c with more than one line, none, or a command beside it is told, with status 64"
gives 64 "$MNT/a" -c
gives 64 "$MNT/a" -c one two
gives 64 -c true "$MNT/a" -- true
said 'command already'
gives 0 "$MNT/a" -- sh -c true

it "-u gives back what flock(1) has locked on a descriptor, and makes no sense for a name"
exec 9<>"$MNT/u"
flock 9
expect_not flock -n "$MNT/u" true
"$LEASERUN" -u 9
expect_is $? 0
expect flock -n "$MNT/u" true
exec 9>&-
gives 64 -u 9
gives 64 -u "$MNT/u"
said 'not the number of a descriptor'
gives 64 -u "$MNT/u" -- echo ran
said 'runs nothing'
expect_not grep -q '^ran' "$OUT"
expect absent u

# --- -F ---

it "-F: the command takes the place of leaserun, while the lock is held; it is free when the command has ended"
"$LEASERUN" -F "$MNT/f" -- sh -c "echo \$\$ >'$TEST_DIR/pid'; [ -e '$MNT/f' ] && ! flock -n '$MNT/f' true && exit 5" &
RUNNER=$!
ended 5
expect_is "$(pid_of pid)" "$RUNNER"
expect eventually 5 absent f

it "-F: it finds the name and the token, and has no child that it did not start"
gives 0 -F "$MNT/f" -- sh -c 'echo "$LEASE_NAME"; setfattr -n user.lease.check -v "$LEASE_TOKEN" "$LEASE_NAME" && echo current'
said "^$MNT/f\$"
said '^current$'
expect eventually 5 absent f
gives 0 -F "$MNT/f" -- "$PYTHON" -c '
import os
try: os.wait(); print("a child")
except ChildProcessError: print("none")'
said '^none$'

it "-F: it waits, is refused and gives up as without; a command that is not there gives 127, and the lock is free"
exec 9<>"$MNT/f"
expect eventually 5 flock 9
gives 1 -F -n "$MNT/f" -- echo ran
gives 7 -F -w 0.2 -E 7 "$MNT/f" -- echo ran
expect_not grep -q '^ran' "$OUT"
begin -F "$MNT/f" -- sh -c 'exit 8'
expect eventually 5 waiters f 1
flock -u 9
exec 9>&-
ended 8
gives 127 -F "$MNT/f" -- "$TEST_DIR/none"
expect eventually 5 absent f

it "-F: a signal ends the wait, and the place in the queue"
exec 9<>"$MNT/f"
expect eventually 5 flock 9
begin -F "$MNT/f" -- true
expect eventually 5 waiters f 1
kill -TERM "$RUNNER"
ended 143
expect eventually 5 waiters f 0
exec 9>&-

it "-F: kill -9 for the command frees the lock"
begin -F "$MNT/f" -- sleep 60
expect eventually 5 exists f
expect eventually 5 grep -qs sleep "/proc/$RUNNER/comm"
kill -KILL "$RUNNER"
ended 137
expect eventually 5 absent f

it "-F: a lock that is broken ends the command and its descendants, also what ignores SIGTERM"
begin -F "$MNT/f" -- sh -c "trap '' TERM; (trap '' TERM; echo x >'$TEST_DIR/child'; while :; do sleep 0.05; done) & echo \$! >'$TEST_DIR/child.pid'; while :; do sleep 0.05; done"
expect eventually 5 mark child
setfattr -n user.lease.break -v 1 "$MNT/f"
ended 137
expect eventually 5 gone "$(pid_of child.pid)"
expect eventually 5 grep -q 'lock is lost' "$OUT.bg"

it "-F: so it does in a pid namespace that does not know their process group"
start unshare --mount --pid --fork --kill-child --mount-proc \
    sh -c "'$LEASERUN' -F '$MNT/f' -- sh -c 'sleep 60 & flock 9; wait' 9>'$TEST_DIR/running'; sleep 60" 2>/dev/null
running() { ! flock -n "$TEST_DIR/running" true; }
expect eventually 5 running
setfattr -n user.lease.break -v 1 "$MNT/f"
expect timeout 5 flock "$TEST_DIR/running" true
end_process "$STARTED"

it "-F: a command that is killed since the process that watches cannot act is said to have lost the lock"
begin -F "$MNT/k" -- sleep 60
expect eventually 5 grep -qs sleep "/proc/$RUNNER/comm"
SENTRY=$(ps -o ppid= -p "$(attribute k owner | cut -d' ' -f2)")
expect [ "$SENTRY" -gt 1 ]
kill -STOP $SENTRY
setfattr -n user.lease.break -v 1 "$MNT/k"
ended 137
kill -CONT $SENTRY
expect eventually 5 grep -q 'lock is lost' "$OUT.bg"

it "-F: it is dead before the lock would end, when the daemon hangs; with time to clean up"
mount_memory ttl=3
begin -F "$MNT/h" -- sh -c "trap 'echo cleaned >\"$TEST_DIR/cleaned\"; exit 9' TERM; echo x >'$TEST_DIR/ready'; while :; do sleep 0.05; done"
expect eventually 5 mark ready
kill -STOP "$DAEMON"
now
T=$NOW
ended 9
now
expect_between 0 $((NOW - T)) 2990 "milliseconds until it was dead"
expect mark cleaned
kill -CONT "$DAEMON"
expect eventually 5 absent h

it "-F: when the process that watches is killed the command is killed, before the lock is free"
begin -F "$MNT/h" -- sleep 60
expect eventually 5 grep -qs sleep "/proc/$RUNNER/comm"
KEEPER=$(attribute h owner | cut -d' ' -f2)
SENTRY=$(ps -o ppid= -p "$KEEPER")
expect [ "$SENTRY" -gt 1 ]
kill -KILL "$SENTRY"
ended 137
expect eventually 5 absent h

it "-F: inside a leaserun of the same lock the command runs at once"
gives 0 "$MNT/h" -- "$LEASERUN" -F -n "$MNT/h" -- true

finish
