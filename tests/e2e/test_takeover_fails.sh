#!/bin/bash
# A takeover whose new daemon fails, or is killed, at one of its steps before the old daemon has ended: nobody notices.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=takeover.sh
. "$(dirname "$0")/takeover.sh"
command -v strace >/dev/null || skip_all "no strace"
sees_all || skip_all "needs CAP_SYS_PTRACE"

# Directories in /run where mounts are prepared, other than the one that all daemons share.
stages() { find /run -maxdepth 1 -name 'leasefs.*' ! -name leasefs.stage | sort; }
stages >"$TEST_DIR/stages"
takeover_mount allow_other,ttl=200

# fails RULE…: strace lets the new daemon fail so, see strace(1), -e inject; what it says is in $TEST_DIR/failed.
fails() {
    local rules=() rule
    for rule; do rules+=(-e "inject=$rule"); done
    {
        strace -qq -o /dev/null "${rules[@]}" "$LEASEFS" -f -o "takeover,$OPTIONS" "$store" "$point" \
            >"$TEST_DIR/failed" 2>&1 && fail "it has not failed with $*"
    } 2>/dev/null
    expect eventually 10 [ "$(daemon_of)" = "$DAEMON" ]
    nothing_has_changed
    expect_is "$(layers)" 1
}
killed() { fails "$1:signal=KILL:when=$2" "${@:3}"; } # CALL N [RULE…]

load_start 0.02

it "a step that the kernel refuses"
fails openat:error=EMFILE:when=40+
fails clone:error=EAGAIN:when=1
fails mount:error=ENOMEM:when=1
expect grep -q 'cannot mount on' "$TEST_DIR/failed"
fails open_tree:error=EPERM:when=1
expect grep -q 'cannot move the new mount' "$TEST_DIR/failed"
fails open_tree:error=EPERM:when=2
fails move_mount:error=EPERM:when=1+
if sees_beneath; then fails umount2:error=EPERM:when=3; fi # the first two calls are of the stage directory

it "a new daemon that is killed"
killed pidfd_open 1
killed mount 1
killed open_tree 1
expect_is "$(stat -c %a /run/leasefs.stage)" 700 # no user can reach the mount that is left in it
killed umount2 1 # removes the mount that the killed daemon before has left
killed umount2 3 # after that: removes its own mount from the stage directory
killed rmdir 2
killed move_mount 1
if sees_beneath; then killed umount2 3; fi
killed pidfd_send_signal 1

it "where the kernel cannot put the new mount below the old one"
killed pidfd_send_signal 1 move_mount:error=EINVAL:when=1
fails move_mount:error=EINVAL:when=1+

it "the service manager hears that the old daemon is the main process again, and of no end"
start "$PYTHON" -c "$NOTIFIED" "$TEST_DIR/notify" "$TEST_DIR/notified"
expect eventually 5 [ -S "$TEST_DIR/notify" ]
export NOTIFY_SOCKET=$TEST_DIR/notify
killed pidfd_send_signal 1
expect eventually 5 grep -q "^MAINPID=$DAEMON\$" "$TEST_DIR/notified"
expect_is "$(tail -n 1 "$TEST_DIR/notified")" "MAINPID=$DAEMON"
fails open_tree:error=EPERM:when=1
expect_not grep -q STOPPING "$TEST_DIR/notified"
unset NOTIFY_SOCKET

it "a new daemon that is stopped is killed"
if sees_beneath; then fails umount2:signal=STOP:when=3; fi

it "no call by path has failed meanwhile, and then a takeover succeeds"
load_stop
expect_is "$(attribute flock token)" "$flocked"
takeover
expect_is "$(attribute kept token)" "$kept"
expect_is "$(attribute flock token)" "$flocked"
expect_is "$(layers)" 1

it "daemons that were killed have left nothing"
expect [ ! -e "$TEST_DIR/store/takeover" ]
expect_is "$(grep -cF " - fuse.leasefs $store " /proc/self/mountinfo)" 1
expect_is "$(stages | comm -13 "$TEST_DIR/stages" - | grep -v takeover)" ""
finish
