#!/bin/bash
# A daemon that is killed, or crashes, while it notifies the kernel of leases that expire: its connection ends with it,
# so that no process hangs, and the mount point is usable again within a second.
#
# E2E_KILLS=500 kills so many times (default 30).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "$PYTHON" ] || skip_all "no python3"
command -v setpriv >/dev/null || skip_all "no setpriv"

ulimit -c 0
KILLS=${E2E_KILLS:-30}
LIMIT=1000 # milliseconds until the mount point can be used again
WORST=0
install -m 644 "$E2E_DIR/kill_load.py" "$TEST_DIR"
mkfifo -m 666 "$TEST_DIR/busy"
exec {busy}<>"$TEST_DIR/busy"
mkdir -m 700 "$TEST_DIR/store"

# load [PREFIX COMMAND…]: on $MNT, at work when it returns; its pid is in $LOADER.
load() {
    local line=nothing
    "$@" "$PYTHON" -S -E "$TEST_DIR/kill_load.py" "$MNT" >&"$busy" &
    LOADER=$!
    started+=("$LOADER")
    read -r -t 60 line <&"$busy"
    [ "$line" = busy ] || fail "the load did not start: $line"
    pause "0.0$((RANDOM % 10))"
}

# A daemon whose main thread is gone may have another one that is not.
dead() { ! [ -d "/proc/$1/task" ] || { gone "$1" && [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 | wc -l)" = 1 ]; }; }
refusing() { [[ $(timeout -s KILL 5 stat -f "$MNT/." 2>&1) == *'not connected'* ]]; }
ended() { dead "$DAEMON" && gone "$LOADER" && refusing; }

# ends COMMAND…: the command ends the daemon: nobody hangs, the load included, and a dead mount looks different from a live one.
ends() {
    local from
    mount_index "$MNT"
    mount_daemons[INDEX]=
    now
    from=$NOW
    "$@"
    if ! eventually $((LIMIT * 10 / 1000)) ended; then
        fail "after 10 s somebody still hangs:"
        ps -L -o pid=,stat=,wchan:30=,args= -p "$DAEMON,$LOADER" --ppid "$LOADER" 2>&1 | sed 's/^/# /'
        umount -f "$MNT" 2>/dev/null
        return 1
    fi
    now
    [ $((NOW - from)) -le "$WORST" ] || WORST=$((NOW - from))
    expect_between 0 $((NOW - from)) "$LIMIT" "milliseconds until nobody hangs"
    expect_not pgrep --runstates D -f "$TEST_DIR"
    expect eventually 10 gone "$HELPER"
} 2>/dev/null # bash tells of each process that was killed

# again BACKEND OPTIONS [PREFIX COMMAND…]: mounted over what the last one left.
again() {
    mount_at "$point" "$@"
    HELPER=$(pgrep -P "$DAEMON" -x leasefs-keeper)
}

new_mountpoint
point=$MNT

it "killed $KILLS times under load: each time usable again within a second, and mounted again"
for ((i = 0; i < KILLS; i++)); do
    again memory ""
    load
    ends kill -KILL "$DAEMON" || break
done
expect_is "$i" "$KILLS"
say "$i kills, nobody hung longer than $WORST ms"

it "the same with a store on disk, which the next daemon has at once"
for i in {1..5}; do
    again "local:$TEST_DIR/store" ""
    load
    ends kill -KILL "$DAEMON" || break
done

it "stopped first, and then killed"
for i in {1..5}; do
    again memory ""
    load
    kill -STOP "$DAEMON"
    pause 0.1
    ends kill -KILL "$DAEMON" || break
done

it "signals to the process that watches change nothing: only the end of the daemon counts"
again memory ""
kill -TERM "$HELPER"
kill -34 "$HELPER"
kill -34 "$HELPER"
load
expect kill -0 "$HELPER"
expect touch "$MNT/alive"
ends kill -KILL "$DAEMON"

it "crashed"
signals=(ABRT SEGV ABRT SEGV ABRT SEGV)
grep -qs '^#define SANDBOX_SANITIZERS' "${top_builddir:-.}/config.h" && signals=(ABRT ABRT) # a SEGV would be its report
for signal in "${signals[@]}"; do
    again memory ""
    load
    ends kill "-$signal" "$DAEMON" || break
done

it "without a sandbox"
for i in {1..5}; do
    again memory sandbox=no
    load
    ends kill -KILL "$DAEMON" || break
done
umount -l "$point"

if unshare --mount true 2>/dev/null; then
    it "in another mount namespace than whoever kills it"
    mkfifo "$TEST_DIR/go"
    for i in {1..5}; do
        new_mountpoint
        # shellcheck disable=SC2016 # for the other shell
        unshare --mount --propagation private sh -c '"$1" memory "$2" && exec "$3" -S -E "$4" "$2"' sh \
            "$LEASEFS" "$MNT" "$PYTHON" "$TEST_DIR/kill_load.py" >&"$busy" &
        LOADER=$!
        started+=("$LOADER")
        read -r -t 60 line <&"$busy"
        expect_is "$line" busy
        for pid in $(pgrep -f -x "$LEASEFS memory $MNT"); do
            if [ "$(cat "/proc/$pid/comm")" = leasefs-keeper ]; then HELPER=$pid; else DAEMON=$pid; fi
        done
        kill -KILL "$DAEMON"
        over() { dead "$DAEMON" && gone "$LOADER" && gone "$HELPER"; }
        expect eventually 1 over
    done
else
    left_out "a daemon in another mount namespace" "with CAP_SYS_ADMIN"
fi
finish
