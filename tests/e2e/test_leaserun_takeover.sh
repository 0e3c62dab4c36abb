#!/bin/bash
# A command of leaserun survives restarts and takeovers of its mount's daemon, with one token, while a stranger waits for
# its lock.  If it cannot get its lock back, it is dead before the stranger has the lock.
#
#     LEASERUN_ROUNDS=20: as many of each
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
# shellcheck source=takeover.sh
. "$(dirname "$0")/takeover.sh"
sees_all || skip_all "needs CAP_SYS_PTRACE"
ROUNDS=${LEASERUN_ROUNDS:-4}

# stranger MOUNTPOINT COMMAND: waits for the lock `run`, and notes whether that command lives when it has the lock.
stranger() {
    # shellcheck disable=SC2016
    start "$LEASERUN" "$1/run" sh -c 'if kill -0 "$1" 2>/dev/null; then echo overlap; else echo alone; fi >"$2"' \
        sh "$(pid_of command)" "$TEST_DIR/stranger"
    STRANGER=$STARTED
}
# shellcheck disable=SC2016 # for the command
note='echo $$ >"$0"; exec sleep 600'
restart() {
    mount_index "$point"
    end_process "$DAEMON"
    mount_daemons[INDEX]=
    mount_at "$point" "$store" "$OPTIONS"
}

it "a command survives $ROUNDS restarts and $ROUNDS takeovers with one token, and a stranger waits on"
takeover_mount allow_other,ttl=30
begin "$MNT/run" sh -c "$note" "$TEST_DIR/command"
expect eventually 5 mark command
token=$(attribute run token)
stranger "$MNT"
expect eventually 5 waiters run 1
for ((round = 0; round < ROUNDS; round++)); do
    for step in restart takeover; do
        $step
        expect eventually 10 resumed_now run
        expect eventually 10 waiters run 1 # it has queued again
        expect_is "$(attribute run token)" "$token" "token after $step $round"
    done
    gone "$(pid_of command)" && break
done
expect_not gone "$(pid_of command)"
expect_not gone "$STRANGER"
expect_not mark stranger
kill "$(pid_of command)"
ended 143
expect eventually 10 mark stranger
expect_is "$(cat "$TEST_DIR/stranger")" alone
says A 'rm("kept")' ok
end_actor A
mount_index "$point"
unmount "$point"

it "if no daemon comes, the command is dead before a stranger on another host has the lock"
rm -f "$TEST_DIR/command" "$TEST_DIR/stranger"
# shellcheck source=redis.sh
. "$E2E_DIR/redis.sh"
[ -n "${REDIS_URI:-}" ] || redis_start
mount_redis allow_other,ttl=4
other=$MNT
mount_redis allow_other,ttl=4
begin -k 0.2 "$MNT/run" sh -c "$note" "$TEST_DIR/command"
expect eventually 5 mark command
stranger "$other"
expect eventually 5 waiters run 1
crash "$MNT"
expect eventually 15 mark stranger
expect_is "$(cat "$TEST_DIR/stranger")" alone
ended 75

it "so it is if the lock was lost before the next daemon came"
rm -f "$TEST_DIR/command" "$TEST_DIR/stranger"
mount_redis allow_other,ttl=4
begin -k 0.2 "$MNT/run" sh -c "$note" "$TEST_DIR/command"
expect eventually 5 mark command
stranger "$other"
expect eventually 5 waiters run 1
mount_index "$MNT"
end_process "$DAEMON"
mount_daemons[INDEX]=
expect setfattr -n user.lease.break -v 1 "$other/run"
mount_at "$MNT" "$REDIS_URI" allow_other,ttl=4
expect eventually 15 mark stranger
expect_is "$(cat "$TEST_DIR/stranger")" alone
ended 75
finish
