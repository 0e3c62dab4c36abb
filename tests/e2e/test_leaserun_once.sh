#!/bin/bash
# leaserun --once: a command that runs once per period on any host, and again after a failure or a crash.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
redis_start
mount_two ttl=3

# runs STATUS COUNT MOUNT ARGUMENT…: leaserun with a command that adds a line to a file, which then has COUNT lines.
runs() {
    local status=$1 count=$2 mount=$3
    shift 3
    gives "$status" "$@" "$mount/job" -- sh -c "echo ran >>'$TEST_DIR/runs'; exit \${FAIL:-0}"
    expect_is "$(cat "$TEST_DIR/runs" 2>/dev/null | wc -l)" "$count" "runs after leaserun $*"
}

it "it runs once in the period on two hosts, with status 0 each time, and again after the period"
runs 0 1 "$MOUNT_A" --once 4s
runs 0 1 "$MOUNT_A" --once 4s
runs 0 1 "$MOUNT_B" --once 4s
runs 0 1 "$MOUNT_B" --once 4s -v
said 'has succeeded within the period already'
expect_not grep -q executing "$OUT"
gives 0 --status "$MOUNT_B/job#once"
said '^  once: a command of leaserun --once has succeeded; it runs again when this lease has ended$'
said '^  success of: pid '
expect_not grep -q 'holder:' "$OUT"
on "$MOUNT_B" expect exists 'job#once'
on "$MOUNT_B" expect eventually 6 absent 'job#once'
runs 0 2 "$MOUNT_B" --once 60
expect absent job

it "the period counts from the start of the command, so what a daily job takes does not shift it"
rm -f "$TEST_DIR/runs"
gives 0 --once 5s "$MOUNT_A/slow" -- sleep 3
expect_between 1 "$(remaining 'slow#once')" 2000 "milliseconds left"

it "another user's mark says nothing of this user's command; root's does"
chmod 755 "$TEST_DIR"
mkdir "$TEST_DIR/shared"
mount_at "$TEST_DIR/shared" memory allow_other
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
expect "${nobody[@]}" sh -c "touch '$MNT/job#once' && setfattr -n user.lease.ttl -v 1h '$MNT/job#once'"
rm -f "$TEST_DIR/runs"
runs 0 1 "$MNT" --once 60
said 'could not be stored'
runs 0 2 "$MNT" --once 60
gives 0 --break "$MNT/job#once"
runs 0 3 "$MNT" --once 60
runs 0 3 "$MNT" --once 60
unmount "$MNT"
MNT=$MOUNT_A

it "after a failure it runs again at once; the status is the command's"
gives 0 --break "$MOUNT_A/job#once"
rm -f "$TEST_DIR/runs"
FAIL=3 runs 3 1 "$MOUNT_A" --once 60 -n
FAIL=3 runs 3 2 "$MOUNT_B" --once 60
FAIL=0 runs 0 3 "$MOUNT_B" --once 60
FAIL=0 runs 0 3 "$MOUNT_A" --once 60

it "after a crash it runs again: leaserun, its keeper and its command are killed"
gives 0 --break "$MOUNT_A/job#once"
rm -f "$TEST_DIR/runs"
begin --once 60 "$MOUNT_A/job" -- sh -c "echo \$\$ >'$TEST_DIR/runs'; exec sleep 60"
expect eventually 5 mark runs
kill -KILL "$RUNNER" "$(pid_of runs)"
rm -f "$TEST_DIR/runs"
runs 0 1 "$MOUNT_B" --once 60 -w 10

it "one at a time: who waits for the one that runs finds that it has succeeded"
begin --once 60 "$MOUNT_A/two" -- sh -c "echo a >'$TEST_DIR/first'; sleep 1; echo a >>'$TEST_DIR/two'"
expect eventually 5 mark first
gives 1 -n --once 60 "$MOUNT_B/two" -- sh -c "echo b >>'$TEST_DIR/two'"
gives 0 --once 60 "$MOUNT_B/two" -- sh -c "echo b >>'$TEST_DIR/two'"
ended 0
expect_is "$(cat "$TEST_DIR/two")" a

it "the success is known after the host that ran it has unmounted"
gives 0 --once 60 "$MOUNT_B/far" -- true
unmount "$MOUNT_B"
gives 0 -v --once 60 "$MOUNT_A/far" -- echo again
said 'has succeeded'
expect_not grep -q again "$OUT"

it "what it cannot be used with is refused"
mkdir "$MOUNT_A/queue"
for wrong in "-s $MOUNT_A/job" "-F $MOUNT_A/job" "-l $MOUNT_A/job -l $MOUNT_A/other" "-N 1 $MOUNT_A/queue" "$MOUNT_A/queue" \
    "--loop $MOUNT_A/job"; do
    # shellcheck disable=SC2086
    gives 64 --once 60 $wrong -- true
done
gives 64 --once 10ms "$MOUNT_A/job" -- true
gives 64 --once soon "$MOUNT_A/job" -- true
gives 64 --status --once 60 "$MOUNT_A/job"
gives 64 "$MOUNT_A/in" -- "$LEASERUN" --once 60 "$MOUNT_A/in" -- true

it "a name with spaces"
gives 0 --once 60 "$MOUNT_A/a job" -- echo ran
said ran
gives 0 --once 60 "$MOUNT_A/a job" -- echo ran
expect_not grep -q ran "$OUT"

it "when the store is away at the end the status is the command's, and a warning says that it may run again"
begin --once 60 "$MOUNT_A/away" -- sh -c "echo \$\$ >'$TEST_DIR/away'; sleep .5"
expect eventually 5 mark away
redis_pause
expect eventually 20 gone "$RUNNER"
redis_resume
ended 0
expect grep -q 'has succeeded, but that could not be stored' "$OUT.bg"
expect eventually 10 test -d "$MOUNT_A"
gives 0 -w 10 --once 60 "$MOUNT_A/away" -- echo again
said again

finish
