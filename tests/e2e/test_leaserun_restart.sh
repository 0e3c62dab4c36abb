#!/bin/bash
# leaserun goes on when the daemon of its mount is killed and starts again: its command does not notice.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
[ "$(id -u)" = 0 ] || skip_all "needs root"
sees_all || skip_all "needs CAP_SYS_PTRACE"

RESTARTS=${LEASERUN_RESTARTS:-20}

mount_local "$TEST_DIR/store" allow_other,ttl=200
point=$MNT store=$BACKEND

die() {
    mount_index "$point"
    end_process "$DAEMON"
    mount_daemons[INDEX]=
}
restart() {
    die
    mount_at "$point" "$store" allow_other,ttl=200
}
holds() { expect_not flock -n "$MNT/$1" true; } # LOCK
# The lock of a running command has moved: no process of a dead mount has it.
resumed() { eventually 5 resumed_now "$1"; }
resumed_now() { attribute "$1" owner | grep -qv 'daemon restarted'; }
token_of() { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^LEASE_TOKEN=//p'; } # PID

# shellcheck disable=SC2016 # for the command
note='echo $$ >"$0"; exec sleep 300'

it "a command survives $RESTARTS restarts with one token, and nobody else gets the lock"
begin "$MNT/long" sh -c "$note" "$TEST_DIR/long"
expect eventually 5 mark long
token=$(attribute long token)
for ((i = 0; i < RESTARTS; i++)); do
    restart
    holds long
    expect resumed long
    expect_is "$(attribute long token)" "$token"
    gone "$(pid_of long)" && break
done
holds long
expect_is "$(token_of "$(pid_of long)")" "$token"
expect_not gone "$RUNNER"
kill "$(pid_of long)"
ended 143
expect eventually 5 absent long
expect_is "$(cat "$OUT.bg")" ""

it "a waiting leaserun closes its dead descriptor, queues again, and gets the lock"
begin "$MNT/wait" sh -c "$note" "$TEST_DIR/holder"
expect eventually 5 mark holder
holder=$RUNNER
begin "$MNT/wait" sh -c "$note" "$TEST_DIR/waiter"
expect eventually 5 waiters wait 1
restart
expect resumed wait
expect eventually 5 waiters wait 1
expect_not mark waiter
kill "$(pid_of holder)"
expect eventually 5 gone "$holder"
expect eventually 5 mark waiter
expect_is "$(attribute wait token)" "$(token_of "$(pid_of waiter)")"
kill "$(pid_of waiter)"
ended 143
expect eventually 5 absent wait

it "several locks, shared ones, tickets of a queue, and -F: all go on"
begin -l "$MNT/one" -l "$MNT/two" sh -c "$note" "$TEST_DIR/several"
begin -s "$MNT/shared" sh -c "$note" "$TEST_DIR/shared"
begin -N 2 "$MNT/queue" sh -c "$note" "$TEST_DIR/queue"
begin -F "$MNT/in-place" sh -c "$note" "$TEST_DIR/in-place"
for name in several shared queue in-place; do expect eventually 5 mark "$name"; done
ticket=$(ls "$MNT/queue")
for _ in 1 2; do
    restart
    for name in one two shared "queue/$ticket" in-place; do expect resumed "$name"; done
done
for name in one two in-place; do holds "$name"; done
expect flock -ns "$MNT/shared" true
holds shared
expect_is "$(ls "$MNT/queue")" "$ticket"
for name in several shared queue in-place; do
    expect_not gone "$(pid_of "$name")"
    kill "$(pid_of "$name")"
done
empty() { [ "$(ls -A "$MNT")" = queue ] && [ "$(ls -A "$MNT/queue")" = "" ]; }
expect eventually 5 empty

it "if no daemon comes, the command is dead before the lock would end, and leaserun's exit status is 75"
begin -t 10 -k 0.2 "$MNT/alone" sh -c "$note" "$TEST_DIR/alone"
expect eventually 5 mark alone
now
T=$NOW
left=$(attribute alone remaining)
die
ended 75
now
expect_between 3000 $((NOW - T)) $((${left%.*} * 1000 + 1000)) "milliseconds until the command was dead"
expect gone "$(pid_of alone)"
mount_at "$point" "$store" allow_other,ttl=200
expect eventually 5 absent alone

it "a lock that is broken before leaserun resumes it is lost"
begin "$MNT/broken" sh -c "$note" "$TEST_DIR/broken"
expect eventually 5 mark broken
keeper=$(attribute broken owner | awk '{ print $2 }')
kill -STOP "$keeper"
restart
expect setfattr -n user.lease.break -v 1 "$MNT/broken"
kill -CONT "$keeper"
ended 75
expect gone "$(pid_of broken)"

it "without a next daemon that knows it, as in memory, the command is killed at once"
mount_backend memory ttl=30
begin "$MNT/memory" sh -c "$note" "$TEST_DIR/memory"
expect eventually 5 mark memory
crash "$MNT"
expect eventually 5 gone "$(pid_of memory)"
ended 75
finish
