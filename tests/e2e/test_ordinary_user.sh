#!/bin/bash
# An ordinary user mounts, uses and ends leasefs with fusermount3; and where `local` keeps its store.
#
# Runs in a mount namespace of its own, with a /dev/fuse that users may open (as
# udev makes it) and a /var/lib of its own.
if [ "$(id -u)" -eq 0 ] && [ -z "${E2E_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
    E2E_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "${E2E_NAMESPACE:-}" ] || skip_all "no mount namespaces here"
command -v setpriv >/dev/null || skip_all "no setpriv"
fusermount=$(command -v fusermount3) || skip_all "no fusermount3"
[ -u "$fusermount" ] || skip_all "fusermount3 is not setuid"
getent passwd nobody >/dev/null || skip_all "no user nobody"

mknod "$TEST_DIR/fuse" c 10 229
chmod 666 "$TEST_DIR/fuse"
mount --bind "$TEST_DIR/fuse" /dev/fuse
mount -t tmpfs -o mode=755 leasefs-e2e /var/lib
install -m 755 "$LEASEFS" "$TEST_DIR/leasefs" # a build directory may be closed to other users
LEASEFS=$TEST_DIR/leasefs
uid=$(id -u nobody)
user=(setpriv --reuid="$uid" --regid="$(id -g nobody)" --clear-groups env HOME="$TEST_DIR/home" XDG_STATE_HOME=)
mkdir "$TEST_DIR/home"
chown nobody "$TEST_DIR/home"
# root cannot look into the mount of a user: what the library asks, it asks as that user
device_of() { timeout -s KILL 10 "${user[@]}" stat -c %d "$1" 2>/dev/null; }
answering() {
    local device
    device=$(device_of "$1/.") && [ "$device" != "$("${user[@]}" stat -c %d "$(dirname "$1")")" ]
}
user_mountpoint() {
    new_mountpoint
    chown nobody "$MNT"
}

it "an ordinary user mounts, acquires, reads and releases"
user_mountpoint
mount_at "$MNT" memory ttl=2 "${user[@]}"
actor U "${user[@]}"
actor V "${user[@]}"
says U 'acquire("l", "mine")' ok
says V 'acquire("l")' EEXIST
says V 'content("l")' mine
says V 'rm("l")' EPERM
says U 'get("l", "owner")' "* ${actor_pid[U]} $uid *"
says U 'os.stat(BASE).st_uid' "$uid"
says U 'stat("l", "uid")' "$uid"
says U 'oct(os.stat(BASE).st_mode & 0o7777)' 0o755

it "root's takeover of it is refused"
expect_re "$("$LEASEFS" -o takeover "local:$TEST_DIR/store" "$MNT" 2>&1)" "the leasefs at $MNT is of uid $uid, not of root"
says V 'content("l")' mine

it "there, too, a lease is renewed while its owner lives and ends when it is dead"
pause 4.2
says V 'exists("l")' True
end_actor U
expect eventually $(((2000 + SLACK) / 1000 + 1)) answers V 'exists("l")' False

it "root and other users see nothing of it"
expect_not ls "$MNT" 2>/dev/null
expect_not setpriv --reuid=12345 --regid=12345 --clear-groups ls "$MNT" 2>/dev/null

it "fusermount3 -u by the user ends it cleanly"
end_actor V
expect "${user[@]}" fusermount3 -u "$MNT"
expect eventually 10 gone "$DAEMON"
expect wait "$DAEMON"
mount_daemons[0]=

it "a SIGTERM from the user ends it cleanly"
user_mountpoint
mount_at "$MNT" memory "" "${user[@]}"
device=${mount_devices[-1]}
expect "${user[@]}" kill -TERM "$DAEMON"
expect eventually 10 gone "$DAEMON"
expect wait "$DAEMON"
expect_not mounted_as "$MNT" "$device"
mount_daemons[-1]=

it "in the background it returns 0 once the mount is usable, and a background start that fails says why"
user_mountpoint
expect "${user[@]}" "$LEASEFS" memory "$MNT"
expect "${user[@]}" touch "$MNT/l"
expect "${user[@]}" fusermount3 -u "$MNT"
mkdir -m 755 "$TEST_DIR/roots"

# says_why PATTERN COMMAND…: the command fails with this one line and no other, be it of libfuse or fusermount3.
says_why() {
    local pattern=$1 status=0
    shift
    "$@" >"$TEST_DIR/out" 2>&1 || status=$?
    expect [ "$status" -ne 0 ]
    expect_re "$(cat "$TEST_DIR/out")" "^leasefs: error: $pattern\$"
    expect_is "$(wc -l <"$TEST_DIR/out")" 1
}
says_why "cannot mount on $TEST_DIR/roots: no permission to write to it: mount on a directory of your own, or as root" \
    "${user[@]}" "$LEASEFS" memory "$TEST_DIR/roots"

it "what is missing is one line with its cure: /dev/fuse, the right to it, fusermount3, its setuid bit, a capability"
within() { unshare --mount sh -c "$1; shift; exec \"\$@\"" sh "$@"; } # PREPARATION COMMAND…
user_mountpoint
says_why "cannot mount on $MNT: there is no /dev/fuse: run modprobe fuse; in a container, start it with --device .*" \
    within "mount -t tmpfs none /dev" "$LEASEFS" memory "$MNT"
says_why "cannot mount on $MNT: no permission to open /dev/fuse: mount as root, or have root run: chmod 666 /dev/fuse" \
    within "chmod 600 /dev/fuse" "${user[@]}" "$LEASEFS" memory "$MNT"
chmod 666 /dev/fuse
touch "$TEST_DIR/nothing"
says_why "cannot mount on $MNT: there is no fusermount3, which mounts for ordinary users: install the package fuse3, .*" \
    within "mount --bind $TEST_DIR/nothing $(realpath "$fusermount")" "${user[@]}" "$LEASEFS" memory "$MNT"
install -m 755 "$fusermount" "$TEST_DIR/plain"
says_why "cannot mount on $MNT: mount failed: Operation not permitted: fusermount3 must belong to root and have .*" \
    within "mount --bind $TEST_DIR/plain $(realpath "$fusermount")" "${user[@]}" "$LEASEFS" memory "$MNT"
says_why "cannot mount on $MNT: mount failed: Operation not permitted: root needs CAP_SYS_ADMIN; in a container, .*" \
    setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$LEASEFS" memory "$MNT"

name="allow_other that fuse.conf does not allow is refused with a reason"
if grep -q '^user_allow_other' /etc/fuse.conf 2>/dev/null; then
    left_out "$name" "where /etc/fuse.conf does not allow it"
else
    it "$name"
    user_mountpoint
    says_why "allow_other needs the line user_allow_other in /etc/fuse.conf, or mount as root" \
        "${user[@]}" "$LEASEFS" -o allow_other memory "$MNT"
fi

it "a user's default store is ~/.local/state/leasefs, 0700, one for each mount point, and keeps leases"
user_mountpoint
kept=$MNT
mount_at "$MNT" local ttl=20 "${user[@]}"
actor U "${user[@]}"
says U 'acquire("kept", "k")' ok
expect [ -d "$TEST_DIR/home/.local/state/leasefs" ]
expect_is "$(stat -c %a "$TEST_DIR/home/.local/state/leasefs")" 700
expect_is "$(find "$TEST_DIR/home/.local/state/leasefs" -type f ! -user nobody)" ""
expect_is "$(find "$TEST_DIR/home/.local/state/leasefs" -type f -perm /077)" "" "files open to others"
crash "$kept"
mount_at "$kept" local ttl=20 "${user[@]}"
says U 'content("kept")' k
user_mountpoint
mount_at "$MNT" local "" "${user[@]}"
actor W "${user[@]}"
says W 'ls()' ''
end_actor W
unmount "$MNT"
end_actor U
unmount "$kept"

it "XDG_STATE_HOME is where a user's store goes when it is set"
mkdir "$TEST_DIR/xdg"
chown nobody "$TEST_DIR/xdg"
user_mountpoint
mount_at "$MNT" local "" "${user[@]}" env XDG_STATE_HOME="$TEST_DIR/xdg"
expect [ -d "$TEST_DIR/xdg/leasefs" ]
unmount "$MNT"

it "a user's daemon that is killed while leases expire leaves nobody hanging"
[ -e /sys/fs/fuse/connections ] && mount -t fusectl leasefs-e2e /sys/fs/fuse/connections
install -m 644 "$E2E_DIR/kill_load.py" "$TEST_DIR"
mkfifo -m 666 "$TEST_DIR/busy"
exec {busy}<>"$TEST_DIR/busy"
all_ended() { # a thread may live on when the main one does not
    gone "$DAEMON" && gone "$loader" && [[ $(find "/proc/$DAEMON/task" -mindepth 1 2>/dev/null | wc -l) -le 1 ]]
}
for round in {1..5}; do
    user_mountpoint
    mount_at "$MNT" memory "" "${user[@]}"
    "${user[@]}" "$PYTHON" -S -E "$TEST_DIR/kill_load.py" "$MNT" >&"$busy" &
    loader=$!
    started+=("$loader")
    read -r -t 60 line <&"$busy"
    expect_is "$line" busy "what the load of round $round says"
    kill -KILL "$DAEMON"
    expect eventually 5 all_ended
    umount -f "$MNT"
    mount_daemons[-1]=
done

it "there, too, a flock outlives its daemon, for the process that has its file open"
user_mountpoint
mkdir -m 700 "$TEST_DIR/users"
chown nobody "$TEST_DIR/users"
mount_at "$MNT" "local:$TEST_DIR/users" "" "${user[@]}"
users_mount=$MNT
actor W "${user[@]}"
actor X "${user[@]}"
says W 'f = op("f", "RDWR|CREAT"); flock(f, "EX")' ok
end_process "$DAEMON"
mount_daemons[-1]=
mount_at "$users_mount" "local:$TEST_DIR/users" "" "${user[@]}"
says X 'f = op("f", "RDWR|CREAT"); flock(f, "EX|NB")' EAGAIN
says X 'get("f", "owner")' "* ${actor_pid[W]} $uid *restarted*"
says W 'close(f)' ENOTCONN # it is closed all the same
expect eventually 5 answers X 'flock(f, "EX|NB")' ok
end_actor W
end_actor X
unmount "$users_mount"

it "root's default store is in /var/lib/leasefs"
user=()
mount_backend local ttl=20
root_mount=$MNT
expect touch "$MNT/l"
expect [ -d /var/lib/leasefs ]
expect_is "$(find /var/lib/leasefs -type f -perm /077)" "" "files open to others"
crash "$root_mount"
mount_at "$root_mount" local ttl=20
expect exists l
unmount "$root_mount"

finish
