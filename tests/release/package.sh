#!/bin/bash
# package.sh: builds the Debian package in each suite, and tries it where nothing else is: it is installed, mounts from
# fstab, is used, upgraded while locks are held, removed while it is mounted, and purged.
#
#   make check-package        as root, with a network; takes some minutes for each suite
#
# Environment: PACKAGE_SUITES (bookworm trixie); PACKAGE_OPTIONS, for DEB_BUILD_OPTIONS; PACKAGE_BUILT, a directory in which
# packages are kept and found; and see release.sh.  The version before is the last commit without takeover; the next one
# is this one again, with a higher number.  These systems have no systemd: this script makes a systemctl, which answers for
# one unit.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"

SUITES=${PACKAGE_SUITES:-bookworm trixie}
point=/mnt/locks

files() { (cd "$ROOT" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path ./run/mount \) -prune -o -printf '%y %p %l\n' | sort); }
mounted() { in_root findmnt -n -o FSTYPE "$1"; }
install_deb() { # PACKAGE
    cp "$1" "$ROOT/leasefs.deb"
    in_root apt-get -qq install -y --allow-downgrades --no-install-recommends ./leasefs.deb 2>&1 | tee "$ROOT.said" | { grep '^leasefs: ' || true; }
    rm "$ROOT/leasefs.deb"
}
said() { grep -q -- "$1" "$ROOT.said" || die "apt-get did not print: $1"; }
fact() { sed -n "s/^$1: //p" "$ROOT$2/.leasefs/status"; }
token() { in_root getfattr --only-values --absolute-names -n user.lease.token "$1"; }
awaits() { # COMMAND…: within ten seconds.
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    die "did not come true: $*"
}
gone() { [ ! -d "/proc/$1" ]; }

# --- the packages ---

# As an ordinary user, as Debian does.
build_in() { # DIRECTORY OPTIONS [-b]
    quietly "$OUT/build.log" in_root setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/build \
        sh -c "cd /build/$1 && DEB_BUILD_OPTIONS='$2' dpkg-buildpackage -us -uc ${3:-}"
}

# In a system of its own, with the libraries of that suite: $OUT/before, $OUT/this and $OUT/next.
build() {
    local revision deb
    OUT=${PACKAGE_BUILT:-$SCRATCH}/$SUITE
    ROOT=$SCRATCH/build-$SUITE
    ! ls "$OUT"/next/*.deb >/dev/null 2>&1 || return 0
    mkdir -p "$OUT"
    make_root build-essential debhelper lintian xz-utils
    revision=$WITHOUT_TAKEOVER
    mkdir -p "$ROOT/build" "$OUT/before" "$OUT/this" "$OUT/next"
    copy_sources_of "$revision" "$ROOT/build/before"
    cp -a "$SCRATCH/leasefs" "$ROOT/build/this"
    tar -c -J -C "$SCRATCH" --exclude=leasefs/debian -f "$ROOT/build/leasefs_$VERSION.orig.tar.xz" leasefs
    chown -R 1000:1000 "$ROOT/build"
    say "the packages: of $revision, and of these sources, whose tests run"
    quietly "$OUT/build.log" in_root apt-get -qq build-dep -y --no-install-recommends /build/this
    quietly "$OUT/build.log" in_root apt-get -qq build-dep -y --no-install-recommends /build/before
    build_in before 'nocheck parallel=2' -b
    mv "$ROOT"/build/leasefs_*.deb "$OUT/before"
    rm -f "$ROOT"/build/*.changes "$ROOT"/build/*.buildinfo "$ROOT"/build/*.deb
    build_in this "${PACKAGE_OPTIONS:-parallel=2}"
    grep -E '^# (TOTAL|PASS|FAIL|ERROR)' "$OUT/build.log" || true
    cp "$ROOT"/build/leasefs_*.deb "$OUT/this"
    say "lintian of $SUITE"
    # but for what one suite knows of the policy of the other; and the first package was a native one
    in_root sh -c "lintian --allow-root --fail-on error,warning,info --suppress-tags \
        initial-upload-closes-no-bugs,newer-standards-version,out-of-date-standards-version,odd-historical-debian-changelog-version \
        /build/leasefs_*.changes"
    deb=$(ls "$OUT"/this/leasefs_*.deb)
    dpkg-deb -R "$deb" "$OUT/unpacked"
    sed -i 's/^Version: .*/&+next/' "$OUT/unpacked/DEBIAN/control"
    quietly "$OUT/build.log" dpkg-deb -b --root-owner-group "$OUT/unpacked" "$OUT/next"
    umount "$ROOT/proc"
    rm -rf --one-file-system "$ROOT"
}

# --- an upgrade: what is held before is held after ---

# A lease, a flock and a leaserun at $point.
hold() {
    in_root setpriv --pdeathsig KILL sh -c "touch $point/lease || exit; exec 9>$point/flock; flock 9; read never" <"$SCRATCH/never" >/dev/null 2>&1 &
    in_root setpriv --pdeathsig KILL leaserun $point/run sleep 1000 >/dev/null 2>&1 &
    runner=$!
    for name in lease flock run; do awaits test -e "$ROOT$point/$name"; done
    sleep 1.2 # touch's lease is its shell's
    tokens="$(token $point/lease) $(token $point/flock) $(token $point/run)"
}
still_held() {
    awaits in_root sh -c "! touch $point/lease && ! flock -n $point/flock true && ! leaserun -n $point/run true"
    [ "$(token $point/lease) $(token $point/flock) $(token $point/run)" = "$tokens" ] || die "the tokens are others"
    ! gone "$runner" || die "leaserun has ended"
    say "a lease, a flock and a leaserun are held, with the tokens that they had"
}
end_holders() {
    local process
    for process in $(jobs -p); do kill "$process" || true; done 2>/dev/null
    for process in /proc/[0-9]*; do
        case $(tr '\0' ' ' 2>/dev/null <"$process/cmdline") in "sh -c touch $point/lease"* | "leaserun $point/run"* | 'sleep 1000 ') kill "${process#/proc/}" || true ;; esac
    done 2>/dev/null
    wait 2>/dev/null || true
    awaits in_root sh -c "flock -n $point/flock true && rm -f $point/lease && ! test -e $point/lease"
}

upgrades() {
    local daemon copy
    say "upgrade from a version without takeover: every daemon goes on, and is named"
    install_deb "$OUT"/before/leasefs_*.deb
    echo "local $point leasefs ttl=1m,allow_other 0 0" >"$ROOT/etc/fstab"
    in_root mount -a
    hold
    daemon=$(fact pid $point)
    install_deb "$OUT"/this/leasefs_*.deb
    said "$point: process $daemon (version .*) goes on: its version has no takeover. To restart it: umount $point && mount $point"
    ! gone "$daemon" || die "the daemon has ended"
    still_held
    end_holders
    awaits in_root umount $point
    in_root mount $point

    say "upgrade from one version with takeover to another: each mount is taken over, by hand, of fstab and of a unit"
    in_root mkdir -p -m 555 /mnt/hand /mnt/unit
    in_root leasefs local:/var/lib/leasefs/hand /mnt/hand
    in_root leasefs -o allow_other local /mnt/unit
    fake_unit
    hold
    install_deb "$OUT"/next/leasefs_*.deb
    for name in $point /mnt/hand /mnt/unit; do said "$name: version .* has taken over from process"; done
    grep -qx 'reload leasefs@mnt-unit.service' "$ROOT/run/systemctl.log" || die "the unit was not reloaded"
    still_held

    fact pid /mnt/unit >"$GROUP/cgroup.procs" # as systemd does

    say "a mount namespace without propagation has copies: every daemon goes on, and is named"
    unshare --mount --propagation private sleep 1000 &
    sleep 1
    copy=$(pgrep -x -n sleep)
    daemon=$(fact pid $point)
    rm "$ROOT/run/systemctl.log"
    install_deb "$OUT"/this/leasefs_*.deb
    said "$point: process $daemon .* goes on: a copy of the mount would lose its locks (process $copy). To replace it: mount.leasefs -o takeover local $point"
    said "/mnt/unit: .* To replace it: systemctl reload leasefs@mnt-unit.service"
    [ "$(fact pid $point)" = "$daemon" ] || die "it was taken over"
    still_held
    kill "$copy"
    end_holders
    awaits in_root umount /mnt/hand
}

# The daemon at /mnt/unit is the main process of a unit for whoever asks systemctl, and for its control group.
fake_unit() {
    cat >"$ROOT/usr/bin/systemctl" <<'SYSTEMCTL'
#!/bin/sh
echo "$*" >>/run/systemctl.log
case $* in
"show --value -p MainPID leasefs@mnt-unit.service") sed -n 's/^pid: //p' /mnt/unit/.leasefs/status ;;
"reload leasefs@mnt-unit.service") leasefs -o takeover,allow_other local /mnt/unit ;;
*stop*leasefs@*) umount /mnt/unit ;;
esac
SYSTEMCTL
    chmod 755 "$ROOT/usr/bin/systemctl"
    mkdir -p "$ROOT/run/systemd/system" "$GROUP"
    fact pid /mnt/unit >"$GROUP/cgroup.procs"
}

# --- the whole ---

try_suite() {
    ROOT=$SCRATCH/root-$SUITE
    make_root fuse3 attr
    rm "$ROOT/usr/sbin/policy-rc.d"
    in_root mkdir -m 555 $point
    mkfifo "$SCRATCH/never" 2>/dev/null || true
    exec 8<>"$SCRATCH/never"

    say "what it depends on, so that afterwards its own files are told from theirs"
    cp "$OUT"/this/leasefs_*.deb "$ROOT/leasefs.deb"
    in_root apt-get -qq install -y --no-install-recommends -s ./leasefs.deb | sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -vx leasefs >"$ROOT/tmp/depends" || true
    rm "$ROOT/leasefs.deb"
    xargs -r -a "$ROOT/tmp/depends" chroot "$ROOT" apt-get -qq install -y --no-install-recommends >/dev/null 2>&1
    files >"$ROOT.before"

    say "install: nothing is mounted or started"
    install_deb "$OUT"/this/leasefs_*.deb
    [ -z "$(mounted $point)" ]
    ! pgrep -x leasefs >/dev/null || die "it was started"
    in_root dpkg -L leasefs
    in_root dpkg --verify leasefs
    for file in /usr/bin/leasefs /usr/bin/leaserun /usr/sbin/mount.leasefs /lib/systemd/system/leasefs@.service; do
        in_root test -e $file || die "$file is missing"
    done
    if ! grep -qs 'path-exclude.*doc' -r "$ROOT/etc/dpkg"; then
        in_root sh -c 'test -s /usr/share/doc/leasefs/NEWS.gz && test -s /usr/share/doc/leasefs/NEWS.Debian.gz' || die "no NEWS"
    fi

    say "mount from fstab, as leasefs and as fuse.leasefs; use; remount; umount"
    for type in leasefs fuse.leasefs; do
        echo "local $point $type ttl=1m,allow_other,_netdev,nofail 0 0" >"$ROOT/etc/fstab"
        in_root mount -a
        [ "$(mounted $point)" = fuse.leasefs ]
        in_root touch $point/job
        in_root getfattr --absolute-names -n user.lease.owner $point/job
        ! in_root sh -c "touch $point/job" 2>/dev/null || die "a lock was given twice"
        in_root mount -o remount,ttl=5s $point
        [ "$(in_root getfattr --only-values --absolute-names -n user.lease.ttl $point)" = 5 ]
        in_root setfattr -n user.lease.ttl -v auto $point
        in_root setfattr -n user.lease.break -v 1 $point/job
        in_root umount $point
        [ -z "$(mounted $point)" ]
    done
    [ -d "$ROOT/var/lib/leasefs" ]
    say "debian/tests/smoke"
    cp "$SCRATCH/leasefs/debian/tests/smoke" "$ROOT/tmp"
    in_root /tmp/smoke
    rm "$ROOT/tmp/smoke"

    say "completion and the manual"
    in_root bash -c '. /usr/share/bash-completion/completions/leaserun && complete -p leaserun'
    in_root test -e /usr/share/man/man8/mount.leasefs.8.gz || grep -qs 'path-exclude.*man' -r "$ROOT/etc/dpkg" ||
        die "no manual page for mount.leasefs"

    in_root dpkg --purge leasefs >/dev/null
    upgrades

    say "remove while mounted: the unit ends; another mount goes on, and its locks are held; no link is left that leads nowhere"
    mkdir -p "$ROOT/etc/systemd/system/multi-user.target.wants"
    ln -s "$(in_root dpkg -L leasefs | grep 'leasefs@\.service$')" \
        "$ROOT/etc/systemd/system/multi-user.target.wants/leasefs@mnt-unit.service"
    mkdir -p "$ROOT/etc/apparmor.d"
    in_root ln -s /usr/share/apparmor/extra-profiles/leasefs /etc/apparmor.d/leasefs
    in_root test -s /etc/apparmor.d/leasefs || die "there is no AppArmor profile"
    hold
    echo BACKEND=memory >"$ROOT/etc/leasefs/mnt-locks.conf"
    in_root apt-get -qq remove -y leasefs >"$ROOT.said" 2>&1
    said "leasefs: $point stays mounted"
    [ -z "$(mounted /mnt/unit)" ] || die "the mount of the unit is left"
    [ "$(in_root getfattr --only-values --absolute-names -n user.lease.token $point/lease)" = "${tokens%% *}" ] || die "the lease is gone"
    in_root sh -c "! touch $point/lease 2>/dev/null && ! flock -n $point/flock true" || die "a lock was given twice"
    [ -z "$(find "$ROOT/etc" "$ROOT/usr" -xdev -name '*lease*' -xtype l)" ] || die "a link leads nowhere"
    [ -d "$ROOT/var/lib/leasefs" ] || die "removing took the leases"
    end_holders
    awaits in_root umount $point
    awaits sh -c '! pgrep -x mount.leasefs'

    say "purge leaves nothing"
    : >"$ROOT/etc/fstab"
    rmdir "$ROOT/mnt/hand" "$ROOT/mnt/unit" "$ROOT/etc/apparmor.d" "$GROUP" "$ROOT/etc/systemd/system/multi-user.target.wants" 2>/dev/null || true
    in_root dpkg --purge leasefs
    in_root test ! -e /etc/leasefs || die "settings are left"
    rm -rf "$ROOT/usr/bin/systemctl" "$ROOT/run/systemctl.log" "$ROOT/run/systemd"
    files >"$ROOT.after"
    diff "$ROOT.before" "$ROOT.after" || die "purging left what is shown above, or took it (>: left, <: taken)"
}

inside() {
    VERSION=$(sed -n 's/^AC_INIT(\[leasefs\], \[\(.*\)\])$/\1/p' "$SCRATCH/leasefs/configure.ac")
    GROUP=/sys/fs/cgroup/leasefs-package/leasefs@mnt-unit.service
    [ ! -d /sys/fs/cgroup/unified ] || GROUP=/sys/fs/cgroup/unified/leasefs-package/leasefs@mnt-unit.service
    for SUITE in $SUITES; do
        build
        try_suite
    done
    rmdir "${GROUP%/*}"
}

release debootstrap unshare dpkg-deb -- "$@"
