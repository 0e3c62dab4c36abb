#!/bin/bash
# leaserun --loop: a leader with hot standbys on two hosts.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
redis_start
mount_two ttl=2

leads() { [ "$(tail -n 1 "$TEST_DIR/leaders" 2>/dev/null)" = "$1" ]; }
led() { [ "$(grep -c "^$1\$" "$TEST_DIR/leaders")" -ge "$2" ]; }
# stand NAME MOUNT COMMAND: a loop whose command says that it leads.
stand() { begin -v --loop "$2/leader" -- sh -c "echo $1 >>'$TEST_DIR/leaders'; $3"; }

it "one leads, another takes over when it ends, and the first queues again"
stand a "$MOUNT_A" "exec sleep 60"
A=$RUNNER
expect eventually 5 leads a
stand b "$MOUNT_B" "exec sleep 60"
B=$RUNNER
expect eventually 5 waiters leader 1
pkill -P "$(pgrep -P "$A")" -x sleep || pkill -x -f 'sleep 60' -P "$(pgrep -P "$(pgrep -P "$A")" | tr '\n' ,)"
expect eventually 10 leads b
expect eventually 10 waiters leader 1
gives 0 --break "$MOUNT_A/leader"
expect eventually 10 leads a
expect_not gone "$B"

it "SIGTERM ends the loop and its command: by that signal, and the standby leads"
expect eventually 10 waiters leader 1
kill -TERM "$A"
RUNNER=$A ended 143
expect eventually 10 leads b

it "the next daemon after a crash, and a mount that is away for a while, do not end it"
POINT=$MOUNT_B
queued_again() { [ "$(grep -c 'queueing again' "$OUT.bg")" -ge "$1" ]; } # COUNT
COUNT=$(grep -c 'queueing again' "$OUT.bg")
kill -KILL "$DAEMON_B"
umount -l "$POINT"
expect eventually 10 queued_again $((COUNT + 1)) # its lock's term is over: it cannot resume the lock
COUNT=$(grep -c '^b$' "$TEST_DIR/leaders")
mount_at "$POINT" "$REDIS_URI" ttl=2
expect eventually 30 led b $((COUNT + 1))
kill -HUP "$B"
RUNNER=$B ended 129
MNT=$MOUNT_A
expect eventually 5 absent leader

it "the pause doubles from a second while the command fails"
begin -v --loop "$MOUNT_A/fails" -- sh -c "date +%s%N >>'$TEST_DIR/fails'; exit 3"
three() { [ -s "$TEST_DIR/fails" ] && [ "$(wc -l <"$TEST_DIR/fails")" -ge 3 ]; }
expect eventually 20 three
{ read -r ONE && read -r TWO && read -r THREE; } <"$TEST_DIR/fails"
expect_between 1000 $(((TWO - ONE) / 1000000)) $((1900 + SLACK)) "milliseconds to the second run"
expect_between 2000 $(((THREE - TWO) / 1000000)) $((2900 + SLACK)) "milliseconds to the third"
expect eventually 5 grep -q 'queueing again in 4 seconds' "$OUT.bg" # else the command ends by itself meanwhile
kill -TERM "$RUNNER"
ended 143
expect grep -q 'queueing again in 2 seconds' "$OUT.bg"

it "kill -9 of the loop ends its command"
begin --loop "$MOUNT_A/killed" -- sh -c "echo \$\$ >'$TEST_DIR/killed'; exec sleep 60"
expect eventually 5 mark killed
kill -KILL "$RUNNER"
expect eventually 10 gone "$(pid_of killed)"
expect eventually 10 absent killed

it "what no round can mend ends it at once"
gives 127 --loop "$MOUNT_A/x" -- "$TEST_DIR/none"
gives 126 --loop "$MOUNT_A/x" -- "$TEST_DIR"
gives 66 --loop "$TEST_DIR/x" -- true
gives 64 --loop -n "$MOUNT_A/x" -- true
gives 64 --loop -w 3 "$MOUNT_A/x" -- true
gives 64 --loop -F "$MOUNT_A/x" -- true
gives 64 --status --loop "$MOUNT_A/x"

finish
