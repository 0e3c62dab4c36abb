#!/bin/bash
# The systemd unit: what systemd-analyze says of it, and its command line with a
# socket of the test in the place of the service manager's.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v systemd-analyze >/dev/null || skip_all "no systemd-analyze (package systemd)"
[ -n "$PYTHON" ] || skip_all "no python3"
SOURCES=$(cd "$(dirname "$0")/../.." && pwd)

mkdir "$TEST_DIR/bin" "$TEST_DIR/units" "$TEST_DIR/etc" "$TEST_DIR/etc/leasefs"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
UNIT="$TEST_DIR/units/leasefs@.service"
sed -e "s|@bindir@|$TEST_DIR/bin|; s|@sysconfdir@|$TEST_DIR/etc|" "$SOURCES/fs/leasefs@.service.in" >"$UNIT"
mkfifo "$TEST_DIR/told"
exec {told}<>"$TEST_DIR/told"

# A service manager's end of the socket: prints a line for each datagram, its lines joined by |.
manager() { # ADDRESS, @NAME for an abstract one
    "$PYTHON" -S -E -c 'import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\0" + sys.argv[1][1:] if sys.argv[1][0] == "@" else sys.argv[1])
os.write(1, b"listening\n")
while True:
    os.write(1, s.recv(4096).replace(b"\n", b"|") + b"\n")' "$1" >&"$told" &
    started+=("$!")
    expect_is "$(hears)" listening
}
hears() { # the next message
    local line=nothing
    read -r -t 20 line <&"$told"
    printf '%s\n' "$line"
}

# run_unit INSTANCE MOUNTPOINT [PREFIX COMMAND…]: the command line of the unit, as systemd puts it together.
run_unit() {
    local instance=$1 point=$2 line file word
    local -a command=()
    shift 2
    line=$(sed -n 's/^ExecStart=//p' "$UNIT")
    file=$(sed -n 's/^EnvironmentFile=-//p' "$UNIT")
    file=${file//%i/$instance}
    (
        # shellcheck disable=SC2013 # they stand in one line
        for word in $(sed -n 's/^Environment=//p' "$UNIT"); do export "${word?}"; done
        [ ! -e "$file" ] || while IFS= read -r word; do export "${word?}"; done <"$file"
        for word in $line; do
            # shellcheck disable=SC2154 # from the unit
            case $word in
            '${OPTIONS}') command+=("$OPTIONS") ;;
            '${BACKEND}') command+=("$BACKEND") ;;
            %f) command+=("$point") ;;
            *) command+=("$word") ;;
            esac
        done
        exec "$@" "${command[@]}"
    ) >"$TEST_DIR/log.unit" 2>&1 &
    DAEMON=$!
    started+=("$DAEMON")
}

is_running() {
    MNT=$1
    expect eventually 20 ready_or_ended "$MNT" "$DAEMON"
    remember "$MNT" "$DAEMON" "$TEST_DIR/log.unit"
}

# The bounding set as setpriv(1) has it.
bounding() {
    local set=-all word
    # shellcheck disable=SC2013 # they stand in one line
    for word in $(sed -n 's/^CapabilityBoundingSet=//p' "$UNIT"); do
        word=${word#CAP_}
        set=$set,+${word,,}
    done
    echo "$set"
}

it "it is started when the network is up, and after a server on the same host"
expect grep -qx 'Wants=network-online.target' "$UNIT" # else nothing waits for the network at boot
for name in network-online.target redis-server.service redis.service postgresql.service zookeeper.service; do
    expect grep -q "^After=.*\b$name\b" "$UNIT"
done

it "systemd-analyze verify has nothing to say"
ln -s "leasefs@.service" "$TEST_DIR/units/leasefs@mnt-locks.service"
expect_is "$(systemd-analyze verify --man=no "$TEST_DIR/units/leasefs@mnt-locks.service" 2>&1)" ""

it "systemd-analyze security: as closed as a mount of root's can be"
# 0.2 of it is NotifyAccess=all, for the daemon that takes over
expect systemd-analyze security --offline=true --no-pager --threshold=49 "$TEST_DIR/units/leasefs@mnt-locks.service" \
    >"$TEST_DIR/security" 2>&1
say "$(tail -1 "$TEST_DIR/security" | tr -cd '[:print:]')"

it "nothing in it gives the daemon a mount namespace of its own, which would hide the mount"
expect_is "$(grep -E '^(Private(Tmp|Devices|Mounts|IPC|Network)|Protect(System|Home|Kernel.*|ControlGroups|Proc)|ProcSubset|RootDirectory|RootImage|Bind.*|TemporaryFileSystem|MountFlags|MountImages|Extension.*|[A-Za-z]*Paths|DynamicUser|LogNamespace)=' "$UNIT")" ""

manager "$TEST_DIR/notify"
export NOTIFY_SOCKET=$TEST_DIR/notify
mkdir "$TEST_DIR/first" "$TEST_DIR/a mount"

it "it tells READY when the mount answers, and what is mounted where"
printf 'BACKEND=local:%s\nOPTIONS=ttl=7s,allow_other\n' "$TEST_DIR/store" >"$TEST_DIR/etc/leasefs/one.conf"
run_unit one "$TEST_DIR/first"
expect_is "$(hears)" "READY=1|STATUS=local:$TEST_DIR/store mounted on $TEST_DIR/first"
expect answering "$TEST_DIR/first"
is_running "$TEST_DIR/first"
expect_is "$(getfattr --only-values --absolute-names -n user.lease.ttl "$MNT")" 7

it "killed and started by the same line again it tells READY again, and leases are there"
actor A
says A 'acquire("kept", "k")' ok
mount_index "$MNT"
end_process "$DAEMON"
mount_daemons[INDEX]=
expect_not ls "$MNT" 2>/dev/null
run_unit one "$TEST_DIR/first"
expect_is "$(hears)" "READY=1|STATUS=*"
is_running "$TEST_DIR/first"
says A 'content("kept")' k
end_actor A

it "SIGTERM: it tells STOPPING, unmounts, and ends with status 0"
mount_index "$MNT"
kill -TERM "$DAEMON"
expect_is "$(hears)" "STOPPING=1|*"
expect wait "$DAEMON"
expect_not answering "$MNT"
mount_daemons[INDEX]=

it "umount: the same"
run_unit one "$TEST_DIR/first"
expect_is "$(hears)" "READY=1|*"
is_running "$TEST_DIR/first"
expect umount "$MNT"
expect_is "$(hears)" "STOPPING=1|*"
expect wait "$DAEMON"
mount_daemons[-1]=

it "watched, it tells that it is alive twice in each interval; stopped, it does not"
WATCHDOG_USEC=400000 run_unit one "$TEST_DIR/first"
expect_is "$(hears)" "READY=1|*"
is_running "$TEST_DIR/first"
now
from=$NOW
for i in {1..5}; do expect_is "$(hears)" WATCHDOG=1; done
now
expect_between 500 $((NOW - from)) $((1000 + SLACK)) "milliseconds for five" # less than 1000 where the first was read late
kill -STOP "$DAEMON"
while read -r -t 1 line <&"$told"; do expect_is "$line" WATCHDOG=1; done # those from before
line=
read -r -t 1 line <&"$told"
expect_is "$line" ""
kill -CONT "$DAEMON"
expect_is "$(hears)" WATCHDOG=1
expect umount "$MNT"
until line=$(hears) && [ "$line" != WATCHDOG=1 ]; do :; done
expect_is "$line" "STOPPING=1|*"
expect wait "$DAEMON"
mount_daemons[-1]=

it "when another process is the one that is watched, or none, it wakes up for nobody"
for watched in "WATCHDOG_USEC=200000 WATCHDOG_PID=1" ""; do
    # shellcheck disable=SC2086 # several words
    run_unit one "$TEST_DIR/first" env $watched
    expect_is "$(hears)" "READY=1|*"
    is_running "$TEST_DIR/first"
    line=
    read -r -t 0.5 line <&"$told"
    expect_is "$line" ""
    expect umount "$MNT"
    expect_is "$(hears)" "STOPPING=1|*"
    expect wait "$DAEMON"
    mount_daemons[-1]=
done

it "an abstract socket, a mount point with a space"
manager "@leasefs-e2e-$$"
printf 'BACKEND=memory\n' >"$TEST_DIR/etc/leasefs/two.conf"
NOTIFY_SOCKET=@leasefs-e2e-$$ run_unit two "$TEST_DIR/a mount"
expect_is "$(hears)" "READY=1|STATUS=memory mounted on $TEST_DIR/a mount"
is_running "$TEST_DIR/a mount"
kill -TERM "$DAEMON"
expect_is "$(hears)" "STOPPING=1|*"
expect wait "$DAEMON"
mount_daemons[-1]=

it "with the rights that the unit leaves it, and no new ones"
expect_is "$(bounding)" '-all,+*sys_admin*'
run_unit one "$TEST_DIR/first" setpriv --no-new-privs --bounding-set "$(bounding)"
expect_is "$(hears)" "READY=1|*"
is_running "$TEST_DIR/first"
expect touch "$MNT/l"
expect rm "$MNT/l"
mount_index "$MNT"
end_process "$DAEMON"
mount_daemons[INDEX]=
run_unit one "$TEST_DIR/first" setpriv --no-new-privs --bounding-set "$(bounding)"
expect_is "$(hears)" "READY=1|*"
is_running "$TEST_DIR/first"
kill -TERM "$DAEMON"
expect_is "$(hears)" "STOPPING=1|*"
expect wait "$DAEMON"
expect_not answering "$MNT"
mount_daemons[-1]=

it "a start that fails says so by its status, and tells no READY"
printf 'BACKEND=nosuch\n' >"$TEST_DIR/etc/leasefs/three.conf"
run_unit three "$TEST_DIR/first"
expect_not wait "$DAEMON"
expect grep -q nosuch "$TEST_DIR/log.unit"
expect_is "$(read -r -t 0 _ <&"$told"; echo $?)" 1 "something was told"

it "a daemon in the background leaves the socket to the service that started it"
expect "$LEASEFS" memory "$TEST_DIR/first"
expect answering "$TEST_DIR/first"
expect umount "$TEST_DIR/first"
expect_is "$(read -r -t 0 _ <&"$told"; echo $?)" 1 "something was told"

it "a socket that is not there is told in the log, and the mount comes up"
NOTIFY_SOCKET=$TEST_DIR/nobody run_unit two "$TEST_DIR/first"
is_running "$TEST_DIR/first"
expect grep -q "NOTIFY_SOCKET $TEST_DIR/nobody" "$TEST_DIR/log.unit"
unmount "$MNT"

finish
