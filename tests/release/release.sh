# shellcheck shell=bash
# release.sh: what the scripts of a release share: a scratch directory, the Debian package, and a minimal Debian.
# Sourced by a script that has a function inside(), which runs where what it mounts is seen by nobody else:
#
#     . "$(dirname "$0")/release.sh"
#     inside() { …; }
#     release debootstrap… -- "$@"
#
# It works in a scratch directory, and mounts in a namespace of processes and mounts that ends before
# that directory is deleted, so that nothing can be in it then.
#
# Environment: RELEASE_SUITE, which Debian (default: bookworm); PACKAGE_MIRROR, where it is taken from; RELEASE_ROOTS, a
# directory in which minimal systems are kept for further runs; RELEASE_KEEP, when set, keeps the scratch directory;
# RELEASE_BEFORE, the revision that is the version before (default: the newest tag before this commit).
set -euo pipefail

SUITE=${RELEASE_SUITE:-bookworm}
MIRROR=${PACKAGE_MIRROR:-http://deb.debian.org/debian}
# shellcheck disable=SC2034 # for the scripts
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '== %s\n' "$*"; }
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# quietly LOG COMMAND…: shows the end of what it said, if it fails.
quietly() {
    local log=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null || {
        tail -40 "$log"
        die "failed: $* (see above)"
    }
}

leave() {
    if [ -n "${RELEASE_KEEP:-}" ] || grep -qF " $SCRATCH" /proc/self/mounts; then
        say "kept: $SCRATCH"
    else
        rm -rf --one-file-system "$SCRATCH"
    fi
}

# The last commit without takeover.
WITHOUT_TAKEOVER=366752905730

# Prints $RELEASE_BEFORE or the tag of the release before this one; while there is no tag, the commit above.
before() {
    local tag
    tag=$(cd "$SOURCE" && git -c safe.directory='*' describe --tags --abbrev=0 --match 'v*' 'HEAD^' 2>/dev/null) || tag=$WITHOUT_TAKEOVER
    echo "${RELEASE_BEFORE:-$tag}"
}

# Its sources, in DIRECTORY.
copy_sources_of() { # REVISION DIRECTORY
    mkdir "$2"
    (cd "$SOURCE" && git -c safe.directory='*' archive "$1") | tar -x -C "$2"
}

# The sources as git knows them, or as they were unpacked, in $SCRATCH/leasefs.
copy_sources() {
    mkdir "$SCRATCH/leasefs"
    if [ -e "$SOURCE/.git" ]; then
        (cd "$SOURCE" && git -c safe.directory='*' ls-files -z | xargs -0 tar -c) | tar -x -C "$SCRATCH/leasefs"
    else
        tar -c -C "$SOURCE" --exclude='*.o' --exclude=config.status . | tar -x -C "$SCRATCH/leasefs"
    fi
}

# $SCRATCH/leasefs_*.deb
build_package() {
    say "the package"
    (cd "$SCRATCH/leasefs" && quietly "$SCRATCH/build.log" env DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -us -uc -b)
}

in_root() { # COMMAND…, in $ROOT
    chroot "$ROOT" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# A minimal Debian in $ROOT, with these packages; none of their services is started.
make_root() { # PACKAGE…
    say "a minimal Debian ($SUITE)"
    if [ -n "${RELEASE_ROOTS:-}" ]; then
        [ -d "$RELEASE_ROOTS/$SUITE" ] || quietly "$SCRATCH/root.log" debootstrap --variant=minbase "$SUITE" "$RELEASE_ROOTS/$SUITE" "$MIRROR"
        cp -a "$RELEASE_ROOTS/$SUITE" "$ROOT"
    else
        quietly "$SCRATCH/root.log" debootstrap --variant=minbase "$SUITE" "$ROOT" "$MIRROR"
    fi
    mountpoint -q "$ROOT/proc" || mount -t proc proc "$ROOT/proc"
    [ -c "$ROOT/dev/fuse" ] || mknod -m 666 "$ROOT/dev/fuse" c 10 229
    printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
    chmod 755 "$ROOT/usr/sbin/policy-rc.d"
    in_root apt-get -qq update
    [ $# -eq 0 ] || quietly "$SCRATCH/root.log" in_root apt-get -qq install -y --no-install-recommends "$@"
}

# Installs the package and its tests in $ROOT, which is to boot: this script of tests/release runs when it is up.
install_bootable() { # SCRIPT
    cp "$SCRATCH"/leasefs_*.deb "$ROOT/leasefs.deb"
    quietly "$SCRATCH/root.log" in_root apt-get -qq install -y --no-install-recommends ./leasefs.deb
    rm "$ROOT/leasefs.deb" "$ROOT/usr/sbin/policy-rc.d"
    mkdir -p "$ROOT/root/leasefs" "$ROOT/var/log/journal"
    tar -c -C "$SCRATCH/leasefs" --exclude='*.o' --exclude='*.a' --exclude=./debian/leasefs . | tar -x -C "$ROOT/root/leasefs"
    echo leasefs-boot >"$ROOT/etc/hostname"
    printf '127.0.0.1 localhost leasefs-boot\n' >"$ROOT/etc/hosts"
    cat >"$ROOT/etc/systemd/system/booted.service" <<UNIT
[Service]
Type=simple
ExecStart=/root/leasefs/tests/release/$1
[Install]
WantedBy=multi-user.target
UNIT
    in_root systemctl enable booted
}

make_disk() {
    umount "$ROOT/proc"
    rm -rf "$ROOT"/var/cache/apt/archives/*.deb "$ROOT"/var/lib/apt/lists/*
    cp "$ROOT"/boot/vmlinuz-* "$SCRATCH/kernel"
    cp "$ROOT"/boot/initrd.img-* "$SCRATCH/initrd"
    quietly "$SCRATCH/disk.log" mke2fs -t ext4 -d "$ROOT" "$SCRATCH/disk" 8G
}

# What it prints, but for the kernel's lines and systemd's: ours begin with "@ ".
boot() { # NAME [OPTION-OF-QEMU… -- KERNEL-ARGUMENT…]
    local name=$1 options=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    # The clock of an emulated processor goes with its instructions, so that it is never too slow for what tests say of time.
    # While the guest sleeps, its clock jumps to its next timer.
    local processor=(-accel tcg -icount shift=2,sleep=off -rtc clock=vm -smp 1 -cpu max)
    # In a virtual machine KVM may not be allowed to set what -cpu max says of the processor's faults.
    [ -z "${BOOT_ACCEL:-}" ] || processor=(-accel "$BOOT_ACCEL" -smp 2 -cpu max,-arch-capabilities)
    say "boot ($name)"
    timeout -s KILL 9000 qemu-system-x86_64 "${processor[@]}" "${options[@]}" -m 1024 -display none -monitor none -nic none -no-reboot \
        -serial stdio -drive "file=$SCRATCH/disk,format=raw,if=virtio,cache=unsafe" -kernel "$SCRATCH/kernel" -initrd "$SCRATCH/initrd" \
        -append "root=/dev/vda rw console=ttyS0 panic=-1 quiet ${*:2}" </dev/null 2>&1 | tee "$SCRATCH/console.$name" |
        sed -u -n 's/\r*$//; s/^.*@@ //p'
    grep -q '@@ done' "$SCRATCH/console.$name" || {
        tail -40 "$SCRATCH/console.$name"
        die "it did not come to its end"
    }
    ! grep -q '@@ not ok\|@@ Bail out' "$SCRATCH/console.$name" || die "what failed is above"
}

# release TOOL… -- ARGUMENT…: runs inside(), with what the script was called with.
release() {
    local tool
    while [ "$1" != -- ]; do
        tool=$1
        command -v "$tool" >/dev/null || die "no $tool: apt install debhelper lintian debootstrap qemu-system-x86 podman"
        shift
    done
    shift
    [ "$(id -u)" -eq 0 ] || die "needs root"
    if [ "${1:-}" = --inside ]; then
        SCRATCH=$2
        ROOT=$SCRATCH/root
        # copies of mounts that others have made here would live as long as this
        awk '$3 == "fuse.leasefs" { print $2 }' /proc/self/mounts | xargs -r umount -l
        inside "${@:3}"
        return
    fi
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/leasefs-release.XXXXXX")
    chmod 755 "$SCRATCH"
    trap leave EXIT
    copy_sources
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" --inside "$SCRATCH" "$@"
    say "${0##*/}: all is in order"
}
