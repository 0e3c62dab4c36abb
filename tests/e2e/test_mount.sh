#!/bin/bash
# mount(8), fstab(5), umount(8) and remount; mounting where a killed daemon left its mount.
#
# Runs in a mount namespace of its own, where leasefs is installed: mount(8) looks
# for it in the system's directories only.
if [ "$(id -u)" -eq 0 ] && [ -z "${E2E_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
    E2E_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "${E2E_NAMESPACE:-}" ] || skip_all "no mount namespaces here"
for tool in /sbin/mount.fuse3 fusermount3 setpriv findmnt; do
    command -v $tool >/dev/null || skip_all "no $tool"
done
getent passwd nobody >/dev/null || skip_all "no user nobody"

# --- an installation ---

install -m 755 "$LEASEFS" "$TEST_DIR/leasefs" # a build directory may be closed to other users
LEASEFS=$TEST_DIR/leasefs
# Only copies: the test's directory is deleted at the end, with all that is in it.
mkdir "$TEST_DIR/bin" "$TEST_DIR/sbin"
cp -P /sbin/mount.fuse /sbin/mount.fuse3 "$TEST_DIR/sbin"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
ln -s "$LEASEFS" "$TEST_DIR/sbin/mount.leasefs"
mount --bind "$TEST_DIR/bin" /usr/local/sbin # where mount.fuse3 looks first
mount --bind "$TEST_DIR/sbin" "$(readlink -f /sbin)"
PATH=$TEST_DIR/bin:$TEST_DIR/sbin:$PATH
mount -t tmpfs leasefs-e2e /run/mount # mount(8) takes notes there
: >"$TEST_DIR/fstab"
mount --bind "$TEST_DIR/fstab" /etc/fstab
mknod "$TEST_DIR/fuse" c 10 229
chmod 666 "$TEST_DIR/fuse"
mount --bind "$TEST_DIR/fuse" /dev/fuse
mkdir "$TEST_DIR/home"
chown nobody "$TEST_DIR/home"
awk -F : -v OFS=: -v home="$TEST_DIR/home" '$1 == "nobody" { $6 = home } 1' /etc/passwd >"$TEST_DIR/passwd"
mount --bind "$TEST_DIR/passwd" /etc/passwd # mount(8) tells its helpers of no home
uid=$(id -u nobody)
user=(setpriv --reuid="$uid" --regid="$(id -g nobody)" --clear-groups env HOME="$TEST_DIR/home" XDG_STATE_HOME=)
stranger=(setpriv --reuid=12345 --regid=12345 --clear-groups)
# root cannot look into the mount of a user
device_of() { timeout -s KILL 10 stat -c %d "$1" 2>/dev/null || timeout -s KILL 10 "${user[@]}" stat -c %d "$1" 2>/dev/null; }

daemon_of() { # MOUNTPOINT
    local proc
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/exe")" = "$LEASEFS" ] && [ "$(cat "$proc/comm")" != leasefs-keeper ] || continue
        tr '\0' '\n' <"$proc/cmdline" 2>/dev/null | grep -qxF "$1" && { echo "${proc#/proc/}"; return; }
    done
    return 1
}

# mounts COMMAND…: it succeeds, and a daemon serves $MNT; sets DAEMON.
mounts() {
    if ! timeout 20 "$@" >"$TEST_DIR/out" 2>&1 </dev/null; then
        fail "$*: $(cat "$TEST_DIR/out")"
        return
    fi
    pass
    DAEMON=$(daemon_of "$MNT") || { fail "$*: no daemon"; return; }
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" "$TEST_DIR/out"
}

# refused WORD COMMAND…: it fails, and says WORD.
refused() {
    local word=$1 status=0
    shift
    timeout 20 "$@" >"$TEST_DIR/out" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ] && [ "$status" -lt 124 ] && grep -qF -e "$word" "$TEST_DIR/out"; then
        pass
        say "$(head -1 "$TEST_DIR/out")"
    else
        fail "$*: status $status: $(cat "$TEST_DIR/out")"
    fi
}

# ends COMMAND…: it succeeds, and the daemon of $MNT ends.
ends() {
    mount_index "$MNT"
    expect "$@"
    expect eventually 10 gone "${mount_daemons[INDEX]}"
    expect_not mounted_as "$MNT" "${mount_devices[INDEX]}"
    mount_daemons[INDEX]=
}

# kills: the daemon, and leaves its mount.
kills() {
    mount_index "$MNT"
    end_process "$DAEMON"
    expect eventually 10 gone "$DAEMON"
    mount_daemons[INDEX]=
}

layers() { # MOUNTPOINT: how many mounts are on it
    awk -v point="${1// /\\\\040}" '$5 == point' /proc/self/mountinfo | wc -l
}

ttl() { milliseconds "$(getfattr --only-values -n user.lease.ttl --absolute-names "$MNT" 2>/dev/null)"; }

# --- fstab ---

for type in fuse.leasefs leasefs; do
    it "$type in fstab: mounted by its mount point, with what systemd and mount(8) want to read there"
    new_mountpoint
    chmod 755 "$MNT"
    printf 'local:%s %s %s %s 0 0\n' "$TEST_DIR/store.$type" "$MNT" $type \
        rw,noauto,_netdev,nofail,nosuid,nodev,noatime,allow_other,ttl=8s,x-systemd.requires=network.target,x-systemd.automount,X-mount.mkdir,comment=locks \
        >"$TEST_DIR/table"
    mounts mount -T "$TEST_DIR/table" "$MNT"
    expect touch "$MNT/l"
    expect_is "$(milliseconds "$(attribute l ttl)")" 8000
    expect_is "$(findmnt -n -o FSTYPE,SOURCE "$MNT")" "fuse.leasefs local:$TEST_DIR/store.$type"
    expect_is "$(findmnt -n -o OPTIONS "$MNT")" "*nosuid*nodev*noatime*allow_other*"

    it "$type in fstab: mount -a leaves alone what is mounted, and mounts what is not"
    expect mount -T "$TEST_DIR/table" -a
    sed -i s/noauto,// "$TEST_DIR/table"
    expect mount -T "$TEST_DIR/table" -a
    expect_is "$(layers "$MNT")" 1
    expect exists l
    ends umount "$MNT"
    mounts mount -T "$TEST_DIR/table" -a
    expect exists l
    ends umount "$MNT"

    it "$type in fstab: ro is refused with the reason"
    sed -i s/rw,/ro,/ "$TEST_DIR/table"
    refused "locks need writing" mount -T "$TEST_DIR/table" "$MNT"
    expect_is "$(layers "$MNT")" 0
done

it "a mount point with a space in its name"
MNT="$TEST_DIR/a mount"
mkdir "$MNT"
printf 'memory %s fuse.leasefs noauto 0 0\n' "${MNT// /\\040}" >"$TEST_DIR/table"
mounts mount -T "$TEST_DIR/table" "$MNT"
expect touch "$MNT/l"
kills
mounts mount -T "$TEST_DIR/table" "$MNT"
expect_is "$(layers "$MNT")" '[12]' # 2 before Linux 6.5
expect absent l
ends umount "$MNT"

for type in fuse.leasefs leasefs; do
    it "$type with noauto,user: an ordinary user mounts it, and unmounts it; a stranger cannot"
    new_mountpoint
    chown nobody "$MNT"
    printf 'local %s %s noauto,user,ttl=7 0 0\n' "$MNT" $type >"$TEST_DIR/fstab"
    mounts "${user[@]}" mount "$MNT"
    expect "${user[@]}" touch "$MNT/l"
    expect_is "$("${user[@]}" getfattr --only-values --absolute-names -n user.lease.ttl "$MNT/l")" 7
    expect [ -d "$TEST_DIR/home/.local/state/leasefs" ]
    expect_is "$(ps -o uid= -p "$DAEMON" | tr -d ' ')" "$uid" "the daemon's user"
    refused "" "${stranger[@]}" umount "$MNT"
    ends "${user[@]}" umount "$MNT"
done
: >"$TEST_DIR/fstab"

# --- mount.leasefs ---

it "mount -t leasefs BACKEND MOUNTPOINT"
new_mountpoint
mounts mount -t leasefs "local:$TEST_DIR/helper" "$MNT" -o ttl=7,allow_other
expect touch "$MNT/l"
expect_is "$(milliseconds "$(attribute l ttl)")" 7000
ends umount "$MNT"

it "mount.leasefs takes the flags of mount(8): -n -v -w and -s"
mounts mount -n -v -w -t leasefs memory "$MNT"
expect grep -qF "memory mounted on $MNT" "$TEST_DIR/out"
ends umount "$MNT"
refused nosuchoption mount -t leasefs -o nosuchoption memory "$MNT"
mounts mount -s -t leasefs -o nosuchoption,ttl=9 memory "$MNT"
expect_is "$(ttl)" 9000
ends umount "$MNT"
mounts mount.leasefs memory "$MNT" -o nosuchoption -t leasefs -s
ends umount "$MNT"

it "mount -f (fake) checks and mounts nothing"
expect mount -f -t leasefs memory "$MNT"
expect_is "$(layers "$MNT")" 0
refused "ttl=" mount -f -t leasefs -o ttl=soon memory "$MNT"

it "mount -r and another mount namespace (-N) are refused with a reason"
refused "locks need writing" mount -r -t leasefs memory "$MNT"
refused "locks need writing" mount.leasefs memory "$MNT" -r
refused nsenter mount.leasefs memory "$MNT" -N /proc/1/ns/mnt
expect_is "$(layers "$MNT")" 0

it "a second mount of the same place is refused, and harms nothing"
mounts mount -t leasefs memory "$MNT"
expect touch "$MNT/l"
refused "mounted at" mount -t leasefs memory "$MNT"
refused "mounted at" mount -t fuse.leasefs memory "$MNT"
refused "mounted at" leasefs memory "$MNT"
expect_is "$(layers "$MNT")" 1
expect exists l

# --- a copy of the mount in another namespace ---

it "quickstart --stop, and the next mount of the store, say what keeps the daemon of an unmounted mount"
ends umount "$MNT"
MNT=$TEST_DIR/quick/locks
mkdir -p "$MNT" "$TEST_DIR/quick/build"
cp "$E2E_DIR/../../quickstart" "$TEST_DIR/quick"
mounts leasefs "local:$TEST_DIR/quick/build/locks.store" "$MNT"
unshare --mount --propagation private sleep 600 &
started+=("$!")
expect eventually 10 eval '[ "$(readlink /proc/$!/ns/mnt)" != "$(readlink /proc/self/ns/mnt)" ]'
refused "nsenter -t $! -m umount $MNT" "$TEST_DIR/quick/quickstart" --stop
refused "has a copy of its mount" leasefs "local:$TEST_DIR/quick/build/locks.store" "$MNT"
ends nsenter -t "$!" -m umount "$MNT"
mounts leasefs "local:$TEST_DIR/quick/build/locks.store" "$MNT"
ends "$TEST_DIR/quick/quickstart" --stop
expect_not [ -e "$MNT" ]

# --- remount ---

new_mountpoint
mounts mount -t leasefs memory "$MNT"
expect touch "$MNT/l"

it "mount -o remount,ttl=TIME changes the TTL of what is acquired from then on"
expect mount -o remount,ttl=5s "$MNT"
expect_is "$(ttl)" 5000
expect touch "$MNT/later"
expect_is "$(milliseconds "$(attribute later ttl)")" 5000
expect exists l
expect_is "$(layers "$MNT")" 1
expect leasefs -o remount,ttl=90s memory "$MNT"
expect_is "$(ttl)" 90000

it "remount of a line of fstab: its options and those of the command line"
printf 'memory %s leasefs noauto,allow_other,nosuid,ttl=30s 0 0\n' "$MNT" >"$TEST_DIR/table"
expect mount -T "$TEST_DIR/table" -o remount,ttl=2m "$MNT"
expect_is "$(ttl)" 120000
expect mount -T "$TEST_DIR/table" -o remount "$MNT"
expect_is "$(ttl)" 30000

it "what remount cannot change is refused with a reason: no ttl, a wrong one, ro"
refused "ttl=" mount -o remount,noatime "$MNT"
refused "ttl=" mount -o remount,ttl=soon "$MNT"
refused "locks need writing" mount -o remount,ro "$MNT"
expect_is "$(ttl)" 30000
expect exists l
ends umount "$MNT"
refused "without remount" leasefs -o remount,ttl=5 memory "$MNT"

# --- where a killed daemon left its mount ---

it "a start where a killed daemon left its mount takes that away, and keeps the leases"
mounts mount -t leasefs "local:$TEST_DIR/kept" "$MNT"
actor A
says A 'acquire("l", "mine")' ok
for start in mount.leasefs leasefs; do
    kills
    expect_not ls "$MNT" 2>/dev/null
    mounts "$start" "local:$TEST_DIR/kept" "$MNT"
    expect_is "$(layers "$MNT")" '[12]'
    says A 'content("l")' mine
done
says A 'rm("l")' ok
end_actor A

it "it is unmounted also while processes are in it"
actor A
says A 'os.mkdir(path("d")); os.chdir(path("d"))' ok
says A 'f = op("open", "RDWR|CREAT|EXCL")' ok
kills
mounts leasefs "local:$TEST_DIR/kept" "$MNT"
expect_is "$(layers "$MNT")" '[12]'
says A 'write(f, "x")' ENOTCONN
end_actor A

it "when that one ends, nothing is left there, whichever way it ends"
ends umount "$MNT"
expect eventually 10 eval '[ "$(layers "$MNT")" = 0 ]'
mounts leasefs "local:$TEST_DIR/kept" "$MNT"
kills
mounts leasefs "local:$TEST_DIR/kept" "$MNT"
ends kill -TERM "$DAEMON"
expect eventually 10 eval '[ "$(layers "$MNT")" = 0 ]'
expect_is "$(grep ' /run/leasefs[.].* local:' /proc/self/mountinfo | grep -F "$TEST_DIR/kept")" "" "mounts on the way"

it "an ordinary user's start takes away what that user's daemon left"
new_mountpoint
chown nobody "$MNT"
mounts "${user[@]}" leasefs local "$MNT"
expect "${user[@]}" sh -c "echo kept >$MNT/l"
kills
mounts "${user[@]}" leasefs local "$MNT"
expect_is "$(layers "$MNT")" 1
expect_is "$("${user[@]}" cat "$MNT/l")" kept

it "what a killed daemon of another user left is refused with what to do, and stays"
kills
refused "user $uid has" leasefs memory "$MNT"
expect_is "$(layers "$MNT")" 1
umount -l "$MNT"
new_mountpoint
chown nobody "$MNT"
mounts leasefs memory "$MNT"
kills
refused "user 0 has" "${user[@]}" leasefs memory "$MNT"
expect_is "$(layers "$MNT")" 1
umount -l "$MNT"

it "a daemon that is stopped, not dead, keeps its mount, and the start does not hang"
new_mountpoint
mounts leasefs memory "$MNT"
expect touch "$MNT/l"
kill -STOP "$DAEMON"
refused "does not answer" leasefs memory "$MNT"
kill -CONT "$DAEMON"
expect exists l
expect_is "$(layers "$MNT")" 1
ends umount "$MNT"

it "the dead mount of another file system is not touched"
mounts leasefs -o subtype=other memory "$MNT"
kills
if leasefs memory "$MNT" 2>/dev/null; then # the kernel may still know its attributes: mounted over
    DAEMON=$(daemon_of "$MNT")
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" /dev/null
    ends umount "$MNT"
fi
expect_is "$(findmnt -n -o FSTYPE "$MNT")" fuse.other
umount -l "$MNT"

it "a mount point that is not empty is warned of in one line; one that is, and what a killed daemon left there, is not"
new_mountpoint
for content in '' file; do
    [ -z "$content" ] || : >"$MNT/$content"
    expect leasefs memory "$MNT" 2>"$TEST_DIR/said"
    DAEMON=$(daemon_of "$MNT")
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" /dev/null
    expect_is "$(cat "$TEST_DIR/said")" "${content:+*warning: mount point ?$MNT? is not empty: *}"
    expect_is "$(wc -l <"$TEST_DIR/said")" $((${#content} > 0))
    kills
    expect leasefs memory "$MNT" 2>"$TEST_DIR/said"
    DAEMON=$(daemon_of "$MNT")
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" /dev/null
    expect_is "$(cat "$TEST_DIR/said")" "*in place of a mount whose daemon had been killed"
    expect_not grep 'not empty' "$TEST_DIR/said"
    ends umount "$MNT"
done
rm "$MNT/file"

it "--protect: while nothing is mounted nobody makes files there, root included; it can be mounted as before"
new_mountpoint
expect leasefs --protect "$MNT" 2>"$TEST_DIR/said"
expect_is "$(stat -c %a "$MNT")" 555
expect_not "${stranger[@]}" touch "$MNT/lock" 2>/dev/null
if grep -q 'has no immutable flag' "$TEST_DIR/said"; then
    say "the filesystem of $TEST_DIR has no immutable flag"
else
    expect_is "$(cat "$TEST_DIR/said")" ""
    expect_is "$(lsattr -d "$MNT")" "*-i-* *"
    expect_not touch "$MNT/lock" 2>/dev/null
    expect leasefs --protect "$MNT" # once more
fi
mounts leasefs memory "$MNT"
expect touch "$MNT/lock"
expect_not leasefs --protect "$MNT" 2>"$TEST_DIR/said"
expect_is "$(cat "$TEST_DIR/said")" "*cannot protect '$MNT': it is mounted: unmount it first"
rm "$MNT/lock"
ends umount "$MNT"
chattr -i "$MNT" 2>/dev/null
chmod 755 "$MNT"

it "--protect refuses what is no empty directory, and ordinary users"
: >"$MNT/file"
expect_not leasefs --protect "$MNT" 2>"$TEST_DIR/said"
expect_is "$(cat "$TEST_DIR/said")" "*cannot protect '$MNT': it is not empty: remove what is in it, which is no lock"
rm "$MNT/file"
expect_is "$(leasefs --protect "$MNT/none" 2>&1)" "*cannot protect '$MNT/none': No such file or directory"
expect_is "$("${user[@]}" "$LEASEFS" --protect "$MNT" 2>&1)" "*run as root: an ordinary user needs a mount point that is writable"
expect_is "$(stat -c %a "$MNT")" 755

name="--protect protects the directory that it has looked at, also if its path leads to another meanwhile"
if command -v strace >/dev/null; then
    it "$name"
    mkdir "$TEST_DIR/first" "$TEST_DIR/second"
    ln -s first "$TEST_DIR/path"
    start env ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" strace -qq -o /dev/null -e trace=statx \
        -e inject=statx:delay_enter=2000000 "$LEASEFS" --protect "$TEST_DIR/path" 2>/dev/null # it stops ahead of its first look
    protects_first() { find "/proc/$(pgrep -P "$STARTED")/fd" -lname "$TEST_DIR/first" 2>/dev/null | grep -q .; }
    expect eventually 10 protects_first
    ln -sfn second "$TEST_DIR/path"
    expect wait "$STARTED"
    expect_is "$(stat -c %a "$TEST_DIR/first") $(stat -c %a "$TEST_DIR/second")" "555 755"
    chattr -i "$TEST_DIR/first" "$TEST_DIR/second" 2>/dev/null
else
    skip "$name" "no strace"
fi

name="a daemon whose mount is gone does not poll it while it ends"
if command -v strace >/dev/null; then
    it "$name"
    start env ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" strace -f -qq -o "$TEST_DIR/calls" -e trace=read,writev \
        -e inject=writev:delay_exit=500 "$LEASEFS" -f memory "$MNT"
    expect eventually 10 mountpoint -q "$MNT"
    # the kernel gets a notification for each of a thousand names that end at once, half a millisecond each
    "$PYTHON" -c '
import fcntl, os, sys
files = [open("%s/%d" % (sys.argv[1], i), "w") for i in range(1000)]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
    os.stat(file.name)' "$MNT"
    umount "$MNT"
    expect wait "$STARTED"
    expect_is "$(grep -c 'read.*ENODEV' "$TEST_DIR/calls")" 1
else
    skip "$name" "no strace"
fi

it "a living mount of another file system is mounted over, and is there again afterwards"
mount -t tmpfs leasefs-e2e "$MNT"
: >"$MNT/below"
mounts leasefs memory "$MNT"
expect absent below
ends umount "$MNT"
expect [ -e "$MNT/below" ]
umount "$MNT"

finish
