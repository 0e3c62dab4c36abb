#!/bin/bash
# A daemon is killed, crashes or is replaced, and the next one goes on with the same connection: nobody notices.
#
# Runs in a mount namespace of its own.
if [ "$(id -u)" -eq 0 ] && [ -z "${E2E_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
    E2E_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] || skip_all "not root"
[ -n "$PYTHON" ] || skip_all "no python3"
cp "$E2E_DIR/keep_holder.py" "$TEST_DIR"

daemon_of() { sed -n 's/^pid: //p' "$1/.leasefs/status"; }
keeper_of() { pgrep -P "$1" -x leasefs-keeper; }
another_daemon() { # MOUNTPOINT PID
    local now
    now=$(daemon_of "$1") && [ -n "$now" ] && [ "$now" != "$2" ]
}
fails() { # MOUNTPOINT ERROR
    [[ $(stat -f "$1" 2>&1) == *"$2"* ]]
}
keep() { # BACKEND OPTIONS
    new_mountpoint
    mount_at "$MNT" "$1" "$2"
    mount_daemons[-1]= # others follow it
}
holder() { # NAME [PREFIX…]
    local name=$1
    shift
    partner "$name" "$@" "$PYTHON" -S -E "$TEST_DIR/keep_holder.py" "$MNT"
    expect_is "$(answer "$name")" ready
}
answer() {
    local line
    read -r -t 20 line <&"${actor_out[$1]}" || line=TIMEOUT
    printf '%s\n' "$line"
}
order() { # NAME check|end
    echo "$2" >&"${actor_in[$1]}"
    answer "$1"
}
leave() { # everything of the mount ends
    local last
    last=$(daemon_of "$MNT")
    expect umount "$MNT"
    expect eventually 10 gone "$last"
}

it "a daemon is killed: holders, waiters, inherited descriptors and working directories go on"
keep "local:$TEST_DIR/store" keep=20s,allow_other
holder a
for _ in 1 2 3; do
    old=$(daemon_of "$MNT")
    kill -KILL "$old"
    expect_is "$(order a check)" ok
    expect another_daemon "$MNT" "$old"
    pause 1.1 # a daemon that ends within a second of its start has not served
done
expect_is "$(order a check)" ok

it "it is replaced by takeover in a loop, and nothing fails"
for _ in 1 2 3 4 5; do
    old=$(daemon_of "$MNT")
    start "$LEASEFS" -f -o takeover,keep=20s,allow_other "local:$TEST_DIR/store" "$MNT" 2>>"$TEST_DIR/takeover.log"
    expect_is "$(order a check)" ok
    expect eventually 10 another_daemon "$MNT" "$old"
    expect eventually 10 gone "$old"
    expect_is "$(order a check)" ok
done

it "a stopped daemon is killed by the one that takes over"
old=$(daemon_of "$MNT")
kill -STOP "$old"
start "$LEASEFS" -f -o takeover,keep=20s,allow_other "local:$TEST_DIR/store" "$MNT" 2>>"$TEST_DIR/takeover.log"
expect_is "$(order a check)" ok
expect eventually 10 gone "$old"

it "takeover with another store, or with other options of FUSE, is refused by name, and changes nothing"
old=$(daemon_of "$MNT")
expect_is "$("$LEASEFS" -o takeover,keep=20s,allow_other "local:$TEST_DIR/other" "$MNT" 2>&1)" "*shows the locks of local:*not of local:*"
expect_is "$("$LEASEFS" -o takeover,keep=20s,allow_root "local:$TEST_DIR/store" "$MNT" 2>&1)" "*option allow_root*cannot change*"
expect_is "$("$LEASEFS" -o keep=20s,allow_other "local:$TEST_DIR/store" "$MNT" 2>&1)" "*is mounted at*already*"
expect_is "$(daemon_of "$MNT")" "$old"
expect_is "$(order a check)" ok

it "a copy of the mount in another mount namespace goes on"
mkfifo "$TEST_DIR/go"
holder b unshare --mount --propagation private
old=$(daemon_of "$MNT")
kill -KILL "$old"
expect_is "$(order b check)" ok
expect_is "$(order a check)" ok
pause 1.1
expect_is "$(order b end)" granted

it "the waiter gets the lock from the holder, and nothing is left"
expect_is "$(order a end)" granted
end_actor a
end_actor b
empty() { [ -z "$(find "$MNT" -type f -not -path '*/.leasefs/*')" ]; }
expect eventually 10 empty
socket=/run/leasefs/keeper-$(mountpoint -d "$MNT")
expect [ -S "$socket" ]
expect_is "$(stat -c %a /run/leasefs)" 700
leave
expect eventually 5 [ ! -e "$socket" ]

it "a keeper that ends leaves the socket of the mount that has its device number next"
keep "local:$TEST_DIR/socket" keep=20s
socket=/run/leasefs/keeper-$(mountpoint -d "$MNT")
expect eventually 5 [ -S "$socket" ]
rm "$socket"
: >"$socket"
keeper=$(keeper_of "$(daemon_of "$MNT")")
leave
expect eventually 5 gone "$keeper"
expect [ -e "$socket" ]
rm -f "$socket"

it "a crash does not wait for its core file"
keep "local:$TEST_DIR/crash" keep=20s
holder c
old=$(daemon_of "$MNT")
kill -ABRT "$old"
expect_is "$(order c check)" ok
expect another_daemon "$MNT" "$old"

it "without a keeper the mount ends with the daemon"
old=$(daemon_of "$MNT")
kill -KILL "$(keeper_of "$old")"
pause 0.2
expect_is "$(order c check)" ok
kill -KILL "$old"
expect_re "$(order c check)" "Software caused connection abort|not connected" # the first if it was under way
expect_is "$(order c check)" "*not connected*"
end_actor c
expect umount -l "$MNT"

it "no daemon in time: the mount ends"
keep "local:$TEST_DIR/late" keep=1s
holder d
old=$(daemon_of "$MNT")
kill -KILL "$(pgrep -P "$(keeper_of "$old")" -x leasefs-starter)"
now
begun=$NOW
kill -KILL "$old"
expect_re "$(order d check)" "Software caused connection abort|not connected" # the first if it was under way
expect_is "$(order d check)" "*not connected*"
now
expect_between 900 $((NOW - begun)) $((1500 + SLACK)) "milliseconds"
end_actor d
expect umount -l "$MNT"

it "on Redis the mount ends before another mount can have its locks"
if redis=$(command -v redis-server); then
    start "$redis" --port 0 --unixsocket "$TEST_DIR/redis" --save "" --appendonly yes --dir "$TEST_DIR" >/dev/null
    expect eventually 10 [ -S "$TEST_DIR/redis" ]
    keep "redis+unix://$TEST_DIR/redis" keep=60s,ttl=3s
    first=$MNT
    holder r
    old=$(daemon_of "$MNT")
    keep "redis+unix://$TEST_DIR/redis" keep=0,ttl=3s
    kill -KILL "$(pgrep -P "$(keeper_of "$old")" -x leasefs-starter)"
    now
    begun=$NOW
    kill -KILL "$old"
    order r check >/dev/null
    expect_is "$(order r check)" "*not connected*"
    now
    expect_between 1900 $((NOW - begun)) 2900 "milliseconds until the holder hears of it"
    end_actor r
    last=$(daemon_of "$MNT")
    expect umount "$MNT"
    expect eventually 10 gone "$last"
    expect umount -l "$first"
else
    pass
fi

it "daemons that end at once: calls get an error, and the next attempts come ever later"
keep "local:$TEST_DIR/loop" keep=20s
: >"$TEST_DIR/errors"
for _ in 1 2 3 4; do
    eventually 5 daemon_of "$MNT" >/dev/null 2>&1
    pids=$(pgrep -f -x -- "$LEASEFS -f -o keep=20s local:$TEST_DIR/loop $MNT")
    for pid in $pids; do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != leasefs ] || kill -KILL "$pid"
    done
    pause 0.2
done
expect eventually 5 fails "$MNT" "Input/output error"
works() { touch "$MNT/l" 2>/dev/null; }
expect eventually 10 works
leave

it "with a service manager: both are killed, and the next daemon gets from it what they left"
new_mountpoint
partner manager "$PYTHON" -S -E "$E2E_DIR/keep_manager.py" "$TEST_DIR/notify" "$LEASEFS" -f -o keep=20s \
    "local:$TEST_DIR/managed" "$MNT"
expect_is "$(answer manager)" ready
holder m
old=$(daemon_of "$MNT")
expect_is "$(pgrep -P "$(keeper_of "$old")" -x leasefs-starter)" "" "starters beside a service manager"
expect_is "$(order manager "$(keeper_of "$old")")" ready
expect_is "$(order m check)" ok
expect_is "$(order manager "")" ready # the daemon alone
expect_is "$(order m check)" ok
expect_is "$("$LEASEFS" --status "$MNT")" "daemon: process $(daemon_of "$MNT")"
expect_is "$(order m end)" granted
end_actor m
leave
end_actor manager

it "keep=0 is as if there was no keeper"
keep memory keep=0
old=$(daemon_of "$MNT")
kill -KILL "$old"
expect eventually 5 fails "$MNT" "not connected"
expect umount -l "$MNT"

finish
