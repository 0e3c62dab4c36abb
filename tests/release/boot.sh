#!/bin/bash
# boot.sh: the package on a Debian that boots: with its unit, with lines of fstab, with cron, sshd and a Redis server, with
# the kernel and the sysctls that Debian has.  Boots twice in QEMU, and prints what booted.sh says there.
#
#   make check-boot           as root, with a network; takes some minutes with BOOT_ACCEL=kvm, half an hour without
#
# It needs debhelper, debootstrap and qemu-system-x86, and what ./quickstart installs.  BOOT_TESTS names tests of tests/e2e
# that are run there besides, such as "owner wrappers users mount unit".  See also release.sh.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"

prepare_system() {
    quietly "$SCRATCH/build.log" make -C "$SCRATCH/leasefs" tests/stress/kills
    install_bootable booted.sh
    # shellcheck disable=SC2086 # several words
    [ -z "${BOOT_TESTS:-}" ] || printf '%s\n' $BOOT_TESTS >"$ROOT/root/leasefs/to-run"

    in_root mkdir -m 555 /mnt/local /mnt/fuse /mnt/redis /mnt/away /mnt/unit /mnt/wrong
    cat >"$ROOT/etc/fstab" <<FSTAB
/dev/vda / ext4 defaults 0 1
local /mnt/local leasefs allow_other,ttl=10s,nofail 0 0
memory /mnt/fuse fuse.leasefs allow_other 0 0
redis://localhost /mnt/redis leasefs background,nofail 0 0
redis://127.0.0.1:1 /mnt/away leasefs nofail 0 0
FSTAB
    in_root systemctl enable leasefs@mnt-unit
    echo "OPTIONS=allow_other,nosuchoption" >"$ROOT/etc/leasefs/mnt-wrong.conf"
    mkdir "$ROOT/etc/systemd/system/leasefs@.service.d"
    printf '[Service]\nWatchdogSec=4s\nTimeoutStopSec=3s\n' >"$ROOT/etc/systemd/system/leasefs@.service.d/soon.conf"

    in_root mkdir -p -m 700 /root/.ssh
    in_root ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
    cp "$ROOT/root/.ssh/id_ed25519.pub" "$ROOT/root/.ssh/authorized_keys"
    printf '* * * * * root touch /mnt/local/cron.left; date >>/root/cron.done\n* * * * * root touch /mnt/local/cron.kept && sleep 20\n' \
        >"$ROOT/etc/cron.d/leasefs-boot"
}

inside() {
    build_package
    make_root systemd-sysv udev dbus kmod cron openssh-server openssh-client redis-server redis-tools fuse3 attr sudo procps \
        python3 tini inotify-tools iproute2 busybox make rust-coreutils linux-image-amd64
    say "the system: $(basename "$ROOT"/boot/vmlinuz-*), systemd $(in_root systemctl --version | sed -n '1s/.*(\(.*\))/\1/p')"
    prepare_system
    make_disk
    boot first
    boot second
}

release dpkg-buildpackage dh debootstrap mke2fs qemu-system-x86_64 -- "$@"
