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
    cp "$SCRATCH"/leasefs_*.deb "$ROOT/leasefs.deb"
    quietly "$SCRATCH/root.log" in_root apt-get -qq install -y --no-install-recommends ./leasefs.deb
    rm "$ROOT/leasefs.deb" "$ROOT/usr/sbin/policy-rc.d"
    mkdir -p "$ROOT/root/leasefs/tests" "$ROOT/var/log/journal"
    cp -a "$SCRATCH/leasefs/tests/e2e" "$SCRATCH/leasefs/tests/release" "$SCRATCH/leasefs/tests/proxy.py" "$ROOT/root/leasefs/tests"
    cp -a "$SCRATCH/leasefs/fs" "$SCRATCH/leasefs/man" "$ROOT/root/leasefs"
    quietly "$SCRATCH/build.log" make -C "$SCRATCH/leasefs" tests/stress/kills
    cp "$SCRATCH/leasefs/tests/stress/kills" "$ROOT/root/leasefs"
    # shellcheck disable=SC2086 # several words
    [ -z "${BOOT_TESTS:-}" ] || printf '%s\n' $BOOT_TESTS >"$ROOT/root/leasefs/to-run"
    echo leasefs-boot >"$ROOT/etc/hostname"
    printf '127.0.0.1 localhost leasefs-boot\n' >"$ROOT/etc/hosts"

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

    cat >"$ROOT/etc/systemd/system/booted.service" <<UNIT
[Service]
Type=simple
ExecStart=/root/leasefs/tests/release/booted.sh
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
    quietly "$SCRATCH/disk.log" mke2fs -t ext4 -d "$ROOT" "$SCRATCH/disk" 4G
}

# What it prints, but for the kernel's lines and systemd's: ours begin with "@ ".
boot() {
    # The clock of an emulated processor goes with its instructions, so that it is never too slow for what tests say of time.
    local processor=(-accel tcg -icount shift=2 -rtc clock=vm -smp 1 -cpu max)
    # In a virtual machine KVM may not be allowed to set what -cpu max says of the processor's faults.
    [ -z "${BOOT_ACCEL:-}" ] || processor=(-accel "$BOOT_ACCEL" -smp 2 -cpu max,-arch-capabilities)
    say "boot ($1)"
    timeout -s KILL 9000 qemu-system-x86_64 "${processor[@]}" -m 1024 -display none -monitor none -nic none -no-reboot \
        -serial stdio -drive "file=$SCRATCH/disk,format=raw,if=virtio,cache=unsafe" -kernel "$SCRATCH/kernel" -initrd "$SCRATCH/initrd" \
        -append "root=/dev/vda rw console=ttyS0 panic=-1 quiet" </dev/null 2>&1 | tee "$SCRATCH/console.$1" |
        sed -u -n 's/\r*$//; s/^.*@@ //p'
    grep -q '@@ done' "$SCRATCH/console.$1" || {
        tail -40 "$SCRATCH/console.$1"
        die "it did not come to its end"
    }
    ! grep -q '@@ not ok\|@@ Bail out' "$SCRATCH/console.$1" || die "what failed is above"
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
