#!/bin/bash
# What the daemon gives up once it is mounted; that its life goes on as ever; and who unmounts in the end.
#
# Runs in a mount namespace of its own, with a /dev in which the test is syslog.
if [ "$(id -u)" -eq 0 ] && [ -z "${E2E_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
    E2E_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "${E2E_NAMESPACE:-}" ] || skip_all "no mount namespaces here"
command -v setpriv >/dev/null || skip_all "no setpriv"

dev=$TEST_DIR/dev
mkdir "$dev"
mknod -m 666 "$dev/null" c 1 3
mknod -m 666 "$dev/fuse" c 10 229
ln -s /proc/self/fd "$dev/fd"
start "$PYTHON" -c 'import socket, sys
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind(sys.argv[1])
with open(sys.argv[2], "ab", 0) as out:
    while True:
        out.write(log.recv(4096) + b"\n")' "$dev/log" "$TEST_DIR/syslog"
eventually 10 [ -S "$dev/log" ] || skip_all "python3 cannot listen"
mount --bind "$dev" /dev

user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
sanitized=$(grep -c '^#define SANDBOX_SANITIZERS' "${top_builddir:-.}/config.h" 2>/dev/null)

tsan=$(grep -c '^SANITIZER_FLAGS.*thread' "${top_builddir:-.}/Makefile" 2>/dev/null)

# status PID FIELD: of each thread, once if they are the same.  ThreadSanitizer's own began before all, and keeps its rights.
threads_of() { if [ "${tsan:-0}" -gt 0 ]; then echo "/proc/$1/status"; else echo /proc/"$1"/task/*/status; fi; }
# shellcheck disable=SC2046 # several words
status() { awk -v field="$2:" '$1 == field { print $2 }' $(threads_of "$1") | sort -u; }
threads() { find "/proc/$1/task" -mindepth 1 -maxdepth 1 | wc -l; }
keeper_of() { pgrep -P "$1" -x leasefs-keeper; }
journal() { stat -c %i "$1/journal"; }

# What the kernel's log says that the filter has refused this daemon, since this test began: pids come again.
now
BEGAN=$NOW
refused() {
    dmesg 2>/dev/null | grep -E "type=1326 .* pid=$1 " |
        awk -v began="$BEGAN" '{ time = $0; sub(/^\[ */, "", time); if (time * 1000 >= began - 1000) print }'
}

confined() { # PID
    local set
    for set in Inh Prm Eff Bnd Amb; do
        expect_is "$(status "$1" "Cap$set")" 0000000000000000 "Cap$set"
    done
    expect_is "$(status "$1" NoNewPrivs)" 1 NoNewPrivs
    [ "$sanitized" -gt 0 ] || grep -q 'without libseccomp' "$LOG" || expect_is "$(status "$1" Seccomp)" 2 Seccomp
}

it "no thread has a capability, or gets one, and each has the filter of system calls"
mkdir -m 700 "$TEST_DIR/store"
mount_backend "local:$TEST_DIR/store" ttl=1,sync=always,allow_other
first=$DAEMON point=$MNT
expect touch "$MNT/started" # with the threads of sync= and of notifications
expect [ "$(threads "$first")" -gt 1 ]
confined "$first"

it "the log says what was given up"
expect grep -q '^leasefs: .*sandbox: no capabilities, no_new_privs' "$LOG"
say "$(grep sandbox: "$LOG")"

it "and so does .leasefs/status, which is read from inside the sandbox"
expect grep -q '^sandbox: no capabilities, no_new_privs' "$MNT/.leasefs/status"

it "the keeper has three capabilities, and of the daemon's descriptors the connection, its memory, and what ends it"
helper=$(keeper_of "$first")
expect_is "$(status "$helper" CapPrm)" 0000000000280004
expect_is "$(status "$helper" CapBnd)" 0000000000280004
expect_is "$(status "$helper" NoNewPrivs)" 1 NoNewPrivs
[ "$sanitized" -gt 0 ] || grep -q 'without libseccomp' "$LOG" || expect_is "$(status "$helper" Seccomp)" 2 Seccomp
for fd in 0 1 2; do expect_is "$(readlink "/proc/$helper/fd/$fd")" /dev/null "descriptor $fd"; done
expect_is "$(readlink "/proc/$helper/fd/3")" 'socket:*'
expect_is "$(readlink "/proc/$helper/fd/4")" 'socket:*'
expect_is "$(readlink "/proc/$helper/fd/5")" /proc
expect_is "$(find "/proc/$helper/fd" -mindepth 1 -lname '*signalfd*' | wc -l)" 1
expect_is "$(find "/proc/$helper/fd" -mindepth 1 -lname '*/abort' | wc -l)" 1
expect_is "$(find "/proc/$helper/fd" -mindepth 1 -lname /dev/fuse | wc -l)" 1
expect_is "$(find "/proc/$helper/fd" -mindepth 1 -lname '*leasefs-keep*' | wc -l)" 1
expect_is "$(find -L "/proc/$helper/fd" -mindepth 1 -maxdepth 1 -type d | wc -l)" 2 # /proc, and all connections
expect_is "$(find "/proc/$helper/fd" -mindepth 1 | wc -l)" 12
expect_is "$(readlink "/proc/$helper/cwd")" /

it "leases, handle locks, times, content, attributes and directories are as ever"
actor A
actor B
says A 'acquire("l", "mine")' ok
says B 'acquire("l")' EEXIST
says B 'content("l")' mine
says A 'os.utime(path("l"), (1000, 2000))' ok
expect_is "$(stat -c %Y "$MNT/l")" 2000
says A 'rm("l")' ok
expect flock -n "$MNT/job" [ -e "$MNT/job" ]
expect mkdir "$MNT/d"
expect setfattr -n user.lease.ttl -v 3s "$MNT/d"
expect rmdir "$MNT/d"

it "processes of other users are tracked: renewed while they live, expired when they are dead"
says A 'os.mkdir(path("tmp")); os.chmod(path("tmp"), 0o1777)' ok
actor U "${user[@]}"
says U 'acquire("tmp/theirs")' ok
expect_is "$(attribute tmp/theirs owner)" "* ${actor_pid[U]} 65534 *"
pause 2.2
expect exists tmp/theirs
end_actor U
expect eventually $(((1000 + SLACK) / 1000 + 1)) absent tmp/theirs

it "the journal is compacted"
before=$(journal "$TEST_DIR/store")
churn() {
    says A 'acquire("big", "x" * 60000); rm("big")' ok
    [ "$(journal "$TEST_DIR/store")" != "$before" ]
}
expect eventually 30 churn

it "a restart finds what was held"
says A 'acquire("kept", "k")' ok
expect umount "$point"
expect eventually 10 gone "$first"
expect eventually 10 gone "$helper"
expect_is "$(refused "$first")" "" "system calls refused"
mount_daemons[-1]=
mount_at "$point" "local:$TEST_DIR/store" ttl=1,allow_other
says B 'content("kept")' k
expect_is "$(keeper_of "$DAEMON" | wc -l)" 1

it "SIGTERM unmounts, though the daemon itself may not, also with files open"
helper=$(keeper_of "$DAEMON")
says B 'held = op("open", "RDWR|CREAT|EXCL")' ok
device=${mount_devices[-1]}
kill -TERM "$DAEMON"
expect wait "$DAEMON"
expect_not mounted_as "$point" "$device"
expect eventually 10 gone "$helper"
expect_is "$(refused "$DAEMON")" "" "system calls refused"
expect_is "$(refused "$helper")" "" "system calls of the helper refused"
mount_daemons[-1]=

it "a signal to its service or terminal, which the helper gets too, ends both, and unmounts"
mount_at "$point" memory ""
helper=$(keeper_of "$DAEMON") device=${mount_devices[-1]}
kill -TERM "$helper" "$DAEMON"
expect wait "$DAEMON"
expect eventually 10 gone "$helper"
expect_not mounted_as "$point" "$device"
mount_daemons[-1]=

it "a daemon that is killed leaves its mount, which lets nobody lock below it, and the next one replaces it"
for i in {1..3}; do
    mount_at "$point" "local:$TEST_DIR/store" ""
    expect eventually 10 grep -q sandbox: "$LOG" # what answered at first may have been a dead one's cached attributes
    helper=$(keeper_of "$DAEMON") device=$(device_of "$point/.")
    mount_devices[-1]=$device
    end_process "$DAEMON"
    expect eventually 10 gone "$helper"
    expect mounted_as "$point" "$device"
    expect_not touch "$point/l" 2>/dev/null
    mount_daemons[-1]=
done

it "it does not unmount what was mounted there since"
mount_at "$point" memory ""
expect eventually 10 grep -q sandbox: "$LOG"
first=$DAEMON helper=$(keeper_of "$DAEMON")
says A 'BASE and None; kept = os.open("'"$point"'", os.O_RDONLY)' ok
expect umount -l "$point"
mount_daemons[-1]=
mount_at "$point" memory ""
expect eventually 1 [ -d "/proc/$first" ] # it still has a user
kill -TERM "$first"
expect eventually 10 gone "$helper"
expect eventually 10 gone "$first"
expect mounted_as "$point" "${mount_devices[-1]}"
expect touch "$point/l"

it "when that process was killed the daemon still ends, and leaves the mount behind"
helper=$(keeper_of "$DAEMON")
kill -KILL "$helper"
kill -TERM "$DAEMON"
expect wait "$DAEMON"
expect grep -q "warning: the process that unmounts ($helper) is gone" "$LOG"
expect mounted_as "$point" "${mount_devices[-1]}"
expect umount -l "$point"
mount_daemons[-1]=

it "in the background it detaches and logs to syslog from inside the sandbox"
expect "$LEASEFS" memory "$point" </dev/null
DAEMON=$(pgrep -f -x "$LEASEFS memory $point" | while read -r pid; do
    [ "$(cat "/proc/$pid/comm")" = leasefs-keeper ] || echo "$pid"
done)
started+=("$DAEMON")
remember "$point" "$DAEMON" /dev/null
confined "$DAEMON"
expect eventually 10 grep -q "leasefs\[$DAEMON\]: .*sandbox: no capabilities" "$TEST_DIR/syslog"
expect touch "$point/l"
expect setfattr -n user.lease.break -v 1 "$point/l"
expect eventually 10 grep -q "leasefs\[$DAEMON\]: .*was broken by" "$TEST_DIR/syslog"
expect_is "$(refused "$DAEMON")" "" "system calls refused"
unmount "$point"

it "owners are tracked with hidepid=2, too"
mount -t proc -o hidepid=2 leasefs-e2e /proc
mount_memory ttl=1,allow_other
actor U "${user[@]}"
says U 'acquire("theirs")' ok
expect_is "$(attribute theirs owner)" "* ${actor_pid[U]} 65534 *"
pause 2.2
expect exists theirs
end_actor U
expect eventually $(((1000 + SLACK) / 1000 + 1)) absent theirs
unmount "$MNT"
umount /proc

it "auto_unmount, which is another process's work, goes together with it"
mount_memory auto_unmount
device=${mount_devices[-1]}
confined "$DAEMON"
kill -TERM "$DAEMON"
expect wait "$DAEMON"
expect_not mounted_as "$MNT" "$device"
mount_memory auto_unmount
device=${mount_devices[-1]}
end_process "$DAEMON"
expect eventually 10 eval '! mounted_as "$MNT" "$device"'
mount_daemons[-1]=
mount_daemons[-2]=

it "a Redis server is reached by name, again after it was away, and through a socket with a path"
# shellcheck source=redis.sh
. "$E2E_DIR/redis.sh"
redis_start
mount_backend "redis://localhost:$REDIS_PORT" ttl=5
confined "$DAEMON"
expect touch "$MNT/l"
redis_kill
redis_again
free_again() { touch "$MNT/again" 2>/dev/null; }
expect eventually 20 free_again
# From version 2.41 on glibc's getaddrinfo(3) asks for a socket of AF_NETLINK here, and goes on without it.
without=none
[ "$(getconf GNU_LIBC_VERSION | sed 's/.*\.//')" -lt 41 ] || without=41
expect_is "$(refused "$DAEMON" | grep -v " syscall=$without ")" "" "system calls refused"
unmount "$MNT"
mount_backend "$REDIS_UNIX_URI" ttl=5
expect touch "$MNT/path"
expect redis_key path
redis_kill
redis_again
expect eventually 20 free_again
expect_is "$(refused "$DAEMON")" "" "system calls refused"
unmount "$MNT"

it "sandbox=no keeps all rights, and needs the helper only if it is killed"
mount_memory sandbox=no
expect_is "$(status "$DAEMON" CapEff)" "$(awk '$1 == "CapEff:" { print $2 }' /proc/$$/status)"
expect_is "$(status "$DAEMON" Seccomp)" "$(awk '$1 == "Seccomp:" { print $2 }' /proc/$$/status)"
helper=$(keeper_of "$DAEMON")
expect kill -KILL "$helper"
expect touch "$MNT/l"
expect_not grep -q sandbox: "$LOG"
device=${mount_devices[-1]}
kill -TERM "$DAEMON"
expect wait "$DAEMON"
expect_not mounted_as "$MNT" "$device"
mount_daemons[-1]=

it "in the background, where there is no syslog daemon, what it logs is left out, not refused"
rm "$dev/log"
new_mountpoint
expect "$LEASEFS" memory "$MNT"
for pid in $(pgrep -f -x "$LEASEFS memory $MNT"); do
    [ "$(cat "/proc/$pid/comm")" = leasefs-keeper ] || background=$pid
done
expect touch "$MNT/a"
expect umount "$MNT"
expect eventually 10 gone "$background"
expect_is "$(refused "$background")" "" "system calls refused"

finish
