#!/bin/bash
# A daemon takes over the mount of another one: no call by path fails, and locks stay.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
# shellcheck source=takeover.sh
. "$(dirname "$0")/takeover.sh"
[ "$(id -u)" = 0 ] || skip_all "needs root"
sees_all || skip_all "needs CAP_SYS_PTRACE"

TAKEOVERS=${TAKEOVERS:-20}
takeover_mount allow_other,ttl=200

# refused TEXT ARGUMENT…: nothing has changed.
refused() {
    local text=$1 output status=0
    shift
    output=$("$LEASEFS" "$@" 2>&1) || status=$?
    expect_is "$status" 1
    expect_re "$output" "$text"
    nothing_has_changed
    expect [ ! -e "$TEST_DIR/store/takeover" ]
}

# shellcheck disable=SC2016 # for the command
note='echo $$ >"$0"; exec sleep 300'

it "leases, flocks and a leaserun go on, with their tokens, over $TAKEOVERS takeovers"
actor B
begin "$MNT/run" sh -c "$note" "$TEST_DIR/run"
expect eventually 5 mark run
token=$(attribute run token)
for ((i = 0; i < TAKEOVERS; i++)); do
    takeover
    expect eventually 5 resumed_now run
    expect_is "$(attribute run token)" "$token"
    expect_is "$(attribute kept token)" "$kept"
    expect_is "$(attribute flock token)" "$flocked"
    says B 'b = op("flock", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
    says B 'close(b)' ok
    says A 'write(f, "x")' ENOTCONN
done
expect_not gone "$(pid_of run)"
if sees_beneath; then expect_is "$(layers)" 1; fi

it "what waits and calls through old files get ENOTCONN"
says B 'b = op("flock", "RDWR|CREAT")' ok
tell B 'flock(b, "EX")'
expect eventually 5 waiters flock 1
takeover
expect_re "$(hear B 10)" 'ENOTCONN|ECONNABORTED'
says B 'close(b)' ENOTCONN
says A 'rm("kept")' ok
says A 'acquire("kept")' ok
kept=$(attribute kept token)
says A 'close(f)' ENOTCONN
expect flock -n "$MNT/flock" true

it "under load no call by path fails"
load_start 0
for ((i = 0; i < TAKEOVERS; i++)); do takeover; done
load_stop

it "options change by it; the store does not"
takeover "${OPTIONS/ttl=200/ttl=100}"
expect_is "$(attribute . ttl)" 100
OPTIONS=${OPTIONS/ttl=200/ttl=100}
says A 'f = op("flock", "RDWR|CREAT"); flock(f, "EX")' ok
refused 'shows the locks of .*: a takeover keeps the store' -o takeover "local:$TEST_DIR/other" "$point"
refused 'nonsense' -o takeover,nonsense "$store" "$point"
refused 'a store in memory ends with its daemon' -o takeover memory "$point"
refused '127.0.0.1:1' -o takeover redis://127.0.0.1:1 "$point"

it "a user's is refused, and one where nothing is mounted"
expect_re "$(setpriv --reuid=65534 --regid=65534 --clear-groups "$LEASEFS" -o takeover "$store" "$point" 2>&1)" 'takeover is for root'
mkdir "$TEST_DIR/empty"
expect_re "$("$LEASEFS" -o takeover "$store" "$TEST_DIR/empty" 2>&1)" 'no leasefs that answers is mounted'

it "of two takeovers at once each succeeds or is refused"
for i in 1 2; do
    "$LEASEFS" -f -o "takeover,$OPTIONS" "$store" "$point" >"$TEST_DIR/at-once.$i" 2>&1 &
    started+=("$!")
    rivals[i]=$!
done
load_start 0
expect eventually 20 gone "$DAEMON"
remains() { ! gone "${rivals[$1]}" && gone "${rivals[3 - $1]}" && [ "$(daemon_of)" = "${rivals[$1]}" ]; }
either_remains() { { remains 1 && DAEMON=${rivals[1]}; } || { remains 2 && DAEMON=${rivals[2]}; }; }
expect eventually 20 either_remains
load_stop
mount_index "$point"
mount_daemons[INDEX]=$DAEMON
mount_devices[INDEX]=$(device_of "$point")
expect_is "$(attribute kept token)" "$kept"
if sees_beneath; then expect_is "$(layers)" 1; fi
says A 'close(f)' ENOTCONN
says A 'f = op("flock", "RDWR|CREAT"); flock(f, "EX")' ok

it "an old daemon that does not end keeps its mount"
kill -STOP "$DAEMON"
expect_re "$("$LEASEFS" -o "takeover,$OPTIONS" "$store" "$point" 2>&1)" 'does not answer: is its daemon stopped'
kill -CONT "$DAEMON"
nothing_has_changed
# Now it is stopped when the new mount is in its place.
old=$(grep " $point " /proc/self/mountinfo)
"$LEASEFS" -f -o "takeover,$OPTIONS" "$store" "$point" >"$TEST_DIR/late" 2>&1 &
late=$!
started+=("$late")
while [[ $(</proc/self/mountinfo) == *"$old"* ]] && ! gone "$late"; do :; done
kill -STOP "$DAEMON"
if ! gone "$DAEMON"; then
    load_start 0.02
    expect eventually 20 gone "$late"
    kill -CONT "$DAEMON"
    expect grep -q 'does not end: it goes on' "$TEST_DIR/late"
    load_stop
    nothing_has_changed
    if sees_beneath; then expect_is "$(layers)" 1; fi # the new mount is gone
    pause 1
    expect_not gone "$DAEMON"
fi

if [ "${E2E_STORE:-}" = redis ]; then
    it "while the server is away a takeover is refused, or with background succeeds, and no lock is lost"
    kill -STOP "$REDIS_PID"
    output=$("$LEASEFS" -o "takeover,$OPTIONS" "$store" "$point" 2>&1)
    status=$?
    kill -CONT "$REDIS_PID"
    expect_is "$status" 1
    expect_re "$output" '127.0.0.1:'
    nothing_has_changed
    flocked=$(attribute flock token)
    says B 'b = op("flock", "RDWR|CREAT")' ok
    tell B 'flock(b, "EX")'
    expect eventually 5 waiters flock 1
    kill -STOP "$REDIS_PID"
    takeover_background() { takeover "$OPTIONS,background"; }
    (sleep 7; kill -CONT "$REDIS_PID") &
    takeover_background
    expect_re "$(hear B 10)" 'ENOTCONN|ECONNABORTED'
    expect eventually 20 resumed_now run # the server is away for longer than a request waits for it
    expect_not grep -q 'they will run out' "$LOG.$takeovers"
    expect_is "$(attribute kept token)" "$kept"
    expect_is "$(attribute flock token)" "$flocked"
    says A 'close(f)' ENOTCONN
    says B 'close(b)' ENOTCONN
fi

it "the service manager hears of the new main process, which says that it is ready"
start "$PYTHON" -c "$NOTIFIED" "$TEST_DIR/notify" "$TEST_DIR/notified"
expect eventually 5 [ -S "$TEST_DIR/notify" ]
old=$DAEMON
NOTIFY_SOCKET=$TEST_DIR/notify "$LEASEFS" -o "takeover,$OPTIONS" "$store" "$point"
expect_is "$?" 0
DAEMON=$(daemon_of)
mount_daemons[INDEX]=$DAEMON
mount_devices[INDEX]=$(device_of "$point")
started+=("$DAEMON")
expect eventually 5 gone "$old"
expect [ "$DAEMON" != "$old" ]
expect_is "$(head -1 "$TEST_DIR/notified")" "MAINPID=$DAEMON"
expect eventually 5 grep -q READY=1 "$TEST_DIR/notified"
expect_not grep -q STOPPING "$TEST_DIR/notified"
kill "$(pid_of run)"
ended 143
says A 'rm("kept")' ok
mount_index "$point"
expect umount "$point" # it is no child of this shell, which could tell its exit status
expect eventually 5 gone "$DAEMON"
mount_daemons[INDEX]=

it "other mount namespaces see the new mount, if this one propagates to them"
mkdir "$TEST_DIR/spaces"
mount -t tmpfs leasefs-test "$TEST_DIR/spaces"
mount --make-shared "$TEST_DIR/spaces"
mkdir "$TEST_DIR/spaces/m"
mount_at "$TEST_DIR/spaces/m" "${store/"$TEST_DIR/store"/"$TEST_DIR/spaces.store"}" "$OPTIONS"
store=${store/"$TEST_DIR/store"/"$TEST_DIR/spaces.store"}
point=$MNT
declare -A space=()
apart() { ! [ "/proc/$1/ns/mnt" -ef /proc/self/ns/mnt ]; }
for kind in shared slave private; do
    start unshare --mount --propagation "$kind" sleep 300
    space[$kind]=$STARTED
    expect eventually 5 apart "$STARTED"
done
expect touch "$MNT/kept"
for i in 1 2; do
    takeover
    for kind in shared slave; do
        expect nsenter --mount --target "${space[$kind]}" test -e "$MNT/kept"
        if sees_beneath; then expect_is "$(grep -c " $MNT " "/proc/${space[$kind]}/mountinfo")" 1; fi
    done
    expect_not nsenter --mount --target "${space[private]}" test -e "$MNT/kept"
done
expect rm "$MNT/kept"
for kind in "${!space[@]}"; do end_process "${space[$kind]}"; done
expect unmount "$MNT"
umount "$TEST_DIR/spaces"
finish
