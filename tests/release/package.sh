#!/bin/bash
# package.sh: builds the Debian package, and tries it where nothing else is: in a
# minimal Debian 12 it is installed, mounts from its fstab, is used, and purged.
#
#   make check-package        as root, with a network; takes some minutes
#
# It needs debhelper, lintian and debootstrap, and what ./quickstart installs.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"

files() { (cd "$ROOT" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./run/mount \) -prune -o -printf '%y %p %l\n' | sort); }
mounted() { in_root findmnt -n -o FSTYPE "$1"; }

inside() {
    local point=/mnt/locks
    build_package
    say "lintian"
    lintian --allow-root --fail-on error,warning,info --suppress-tags initial-upload-closes-no-bugs "$SCRATCH"/*.changes
    make_root fuse3 attr
    rm "$ROOT/usr/sbin/policy-rc.d"
    cp "$SCRATCH"/leasefs_*.deb "$ROOT/leasefs.deb"
    in_root mkdir -m 555 $point

    say "what it depends on, so that afterwards its own files are told from theirs"
    in_root apt-get -qq install -y --no-install-recommends -s ./leasefs.deb | sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -vx leasefs >"$ROOT/tmp/depends" || true
    xargs -r -a "$ROOT/tmp/depends" chroot "$ROOT" apt-get -qq install -y --no-install-recommends >/dev/null 2>&1
    files >"$ROOT.before"

    say "install: nothing is mounted or started"
    in_root apt-get -qq install -y --no-install-recommends ./leasefs.deb
    [ -z "$(mounted $point)" ]
    ! pgrep -x leasefs >/dev/null || die "it was started"
    in_root dpkg -L leasefs
    in_root dpkg --verify leasefs
    for file in /usr/bin/leasefs /usr/bin/leaserun /usr/sbin/mount.leasefs /lib/systemd/system/leasefs@.service; do
        in_root test -e $file || die "$file is missing"
    done

    say "mount from fstab, as leasefs and as fuse.leasefs; use; remount; umount"
    for type in leasefs fuse.leasefs; do
        echo "local $point $type ttl=1m,allow_other,_netdev,nofail 0 0" >"$ROOT/etc/fstab"
        in_root mount -a
        [ "$(mounted $point)" = fuse.leasefs ]
        in_root touch $point/job
        in_root getfattr --absolute-names -n user.lease.owner $point/job
        ! in_root sh -c "touch $point/job" 2>/dev/null || die "a lock was given twice"
        in_root leaserun $point/run sh -c "test -e $point/run && echo \"leaserun holds it, token \$LEASE_TOKEN\""
        in_root mount -o remount,ttl=5s $point
        [ "$(in_root getfattr --only-values --absolute-names -n user.lease.ttl $point)" = 5 ]
        in_root setfattr -n user.lease.ttl -v auto $point
        in_root setfattr -n user.lease.break -v 1 $point/job
        in_root umount $point
        [ -z "$(mounted $point)" ]
    done
    [ -d "$ROOT/var/lib/leasefs" ]

    say "completion and the manual"
    in_root bash -c '. /usr/share/bash-completion/completions/leaserun && complete -p leaserun'
    in_root test -e /usr/share/man/man8/mount.leasefs.8.gz || grep -qs 'path-exclude.*man' -r "$ROOT/etc/dpkg" ||
        die "no manual page for mount.leasefs"

    say "remove keeps the leases, purge leaves nothing"
    echo BACKEND=memory >"$ROOT/etc/leasefs/mnt-locks.conf"
    : >"$ROOT/etc/fstab"
    in_root apt-get -qq remove -y leasefs
    [ -d "$ROOT/var/lib/leasefs" ] || die "removing took the leases"
    in_root dpkg --purge leasefs
    in_root test ! -e /etc/leasefs || die "settings are left"
    files >"$ROOT.after"
    diff "$ROOT.before" "$ROOT.after" || die "purging left what is shown above, or took it (>: left, <: taken)"
}

release dpkg-buildpackage dh lintian debootstrap unshare -- "$@"
