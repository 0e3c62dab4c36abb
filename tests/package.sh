#!/bin/bash
# package.sh: builds the Debian package, and tries it where nothing else is: in a
# minimal Debian 12 it is installed, mounts from its fstab, is used, and purged.
#
#   make check-package        as root, with a network; takes some minutes
#
# It needs debhelper, lintian and debootstrap, and what ./quickstart installs.
# PACKAGE_MIRROR is where Debian is taken from.  All is done in a scratch
# directory.  What is mounted is mounted in a namespace of processes and mounts
# that ends before that directory is deleted, so that nothing can be in it then.
set -euo pipefail

suite=bookworm
mirror=${PACKAGE_MIRROR:-http://deb.debian.org/debian}

say() { printf '== %s\n' "$*"; }
die() {
    printf 'package.sh: %s\n' "$*" >&2
    exit 1
}

# --- inside: $1 is the root of the new system ---

inside() {
    local root=$1 point=/mnt/locks
    in_root() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
    files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./run/mount \) -prune -o -printf '%y %p %l\n' | sort); }
    mounted() { in_root findmnt -n -o FSTYPE "$point"; }

    say "a minimal Debian"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
        tail -20 "$root.log"
        die "debootstrap failed"
    }
    cp "${root%/*}"/leasefs_*.deb "$root/leasefs.deb"
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    [ -c "$root/dev/fuse" ] || mknod -m 666 "$root/dev/fuse" c 10 229
    in_root mkdir -m 555 $point

    say "what it depends on, so that afterwards its own files are told from theirs"
    in_root apt-get -qq update
    in_root apt-get -qq install -y --no-install-recommends fuse3 attr >/dev/null 2>&1
    in_root apt-get -qq install -y --no-install-recommends -s ./leasefs.deb | sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -vx leasefs >"$root/tmp/depends" || true
    xargs -r -a "$root/tmp/depends" chroot "$root" apt-get -qq install -y --no-install-recommends >/dev/null 2>&1
    files >"$root.before"

    say "install: nothing is mounted or started"
    in_root apt-get -qq install -y --no-install-recommends ./leasefs.deb
    [ -z "$(mounted)" ]
    ! pgrep -x leasefs >/dev/null || die "it was started"
    in_root dpkg -L leasefs
    in_root dpkg --verify leasefs
    for file in /usr/bin/leasefs /usr/bin/leaserun /usr/sbin/mount.leasefs /lib/systemd/system/leasefs@.service; do
        in_root test -e $file || die "$file is missing"
    done

    say "mount from fstab, as leasefs and as fuse.leasefs; use; remount; umount"
    for type in leasefs fuse.leasefs; do
        echo "local $point $type ttl=1m,allow_other,_netdev,nofail 0 0" >"$root/etc/fstab"
        in_root mount -a
        [ "$(mounted)" = fuse.leasefs ]
        in_root touch $point/job
        in_root getfattr --absolute-names -n user.lease.owner $point/job
        ! in_root sh -c "touch $point/job" 2>/dev/null || die "a lock was given twice"
        in_root leaserun $point/run sh -c "test -e $point/run && echo \"leaserun holds it, token \$LEASE_TOKEN\""
        in_root mount -o remount,ttl=5s $point
        [ "$(in_root getfattr --only-values --absolute-names -n user.lease.ttl $point)" = 5 ]
        in_root setfattr -n user.lease.ttl -v auto $point
        in_root setfattr -n user.lease.break -v 1 $point/job
        in_root umount $point
        [ -z "$(mounted)" ]
    done
    [ -d "$root/var/lib/leasefs" ]

    say "completion and the manual"
    in_root bash -c '. /usr/share/bash-completion/completions/leaserun && complete -p leaserun'
    in_root test -e /usr/share/man/man8/mount.leasefs.8.gz || grep -qs 'path-exclude.*man' -r "$root/etc/dpkg" ||
        die "no manual page for mount.leasefs"

    say "remove keeps the leases, purge leaves nothing"
    echo BACKEND=memory >"$root/etc/leasefs/mnt-locks.conf"
    : >"$root/etc/fstab"
    in_root apt-get -qq remove -y leasefs
    [ -d "$root/var/lib/leasefs" ] || die "removing took the leases"
    in_root dpkg --purge leasefs
    in_root test ! -e /etc/leasefs || die "settings are left"
    files >"$root.after"
    diff "$root.before" "$root.after" || die "purging left what is shown above, or took it (>: left, <: taken)"
}

if [ "${1:-}" = --inside ]; then
    inside "$2"
    exit
fi

# --- outside ---

[ "$(id -u)" -eq 0 ] || die "needs root"
for tool in dpkg-buildpackage dh lintian debootstrap unshare; do
    command -v $tool >/dev/null || die "no $tool: apt install debhelper lintian debootstrap"
done
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/leasefs-package.XXXXXX")

leave() {
    if [ -n "${PACKAGE_KEEP:-}" ] || grep -qF " $scratch" /proc/self/mounts; then
        say "kept: $scratch"
    else
        rm -rf --one-file-system "$scratch"
    fi
}
trap leave EXIT

say "build"
mkdir "$scratch/leasefs"
if [ -e "$source/.git" ]; then
    (cd "$source" && git ls-files -z | xargs -0 tar -c) | tar -x -C "$scratch/leasefs"
else
    tar -c -C "$source" --exclude='*.o' --exclude=config.status . | tar -x -C "$scratch/leasefs"
fi
(cd "$scratch/leasefs" && dpkg-buildpackage -us -uc -b) >"$scratch/build.log" 2>&1 || {
    tail -40 "$scratch/build.log"
    die "the package does not build"
}

say "lintian"
lintian --allow-root --fail-on error,warning,info --suppress-tags initial-upload-closes-no-bugs "$scratch"/*.changes

# No directory of this system is mounted below the scratch directory, and what is there ends here.
unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" --inside "$scratch/root"
say "the package is in order"
