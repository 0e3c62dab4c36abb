#!/bin/bash
# apparmor.sh: the tests of tests/e2e with a daemon that AppArmor confines.  Boots a Debian with the profile in enforce mode
# in QEMU, once for every ten tests, as many at once as there are processors, and prints what confined.sh says there.  Fails
# if a test does, or if the kernel denied the daemon anything that is not in its list.
#
#   make check-apparmor       as root, with a network; takes many hours without BOOT_ACCEL=kvm
#
# The package is built here, so RELEASE_SUITE must be the Debian of this host, or one that has the same libraries.
# APPARMOR_TESTS names some of the tests, such as "mount owner takeover".  APPARMOR_MODE=complain allows everything, and
# shows what would be denied.  It needs debhelper, debootstrap and qemu-system-x86, and what ./quickstart installs.  See also
# release.sh.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"
PART=10

all_tests() { (cd "$SCRATCH/leasefs/tests/e2e" && printf '%s\n' test_*.sh | sed 's/^test_//; s/\.sh$//'); }

# What ./quickstart --check installs, but for what only builds and for the largest of the tools.
test_packages() { sed -n '/^check_packages=(/,/)$/{s/#.*//;s/^check_packages=//;s/[()]//g;p}' "$SOURCE/quickstart" | tr ' ' '\n' | grep -vxE '|check|clang-format|.*-dev'; }

prepare_system() {
    quietly "$SCRATCH/build.log" make -C "$SCRATCH/leasefs" tests/stress/{faults,history,kills,leaserun_cut,names,tickets,waiters} \
        tests/oracle/oracle tests/e2e/counted
    install_bootable confined.sh
    # as leasefs(8) says
    in_root ln -s /usr/share/apparmor/extra-profiles/leasefs /etc/apparmor.d/leasefs
    cat >"$ROOT/etc/apparmor.d/local/leasefs" <<'LOCAL'
# Tests keep everything there: mount points, stores, sockets of servers, keys, logs.
/{dev/shm,tmp}/leasefs-e2e.*/{,**} rwk,
LOCAL
    [ "${APPARMOR_MODE:-enforce}" = enforce ] || in_root ln -s /etc/apparmor.d/leasefs /etc/apparmor.d/force-complain/leasefs
}

inside() {
    local part=0 tests
    build_package
    # shellcheck disable=SC2046 # several words
    make_root systemd-sysv udev dbus kmod apparmor fuse3 attr tini python3 busybox make rust-coreutils linux-image-amd64 $(test_packages)
    say "the system: $(basename "$ROOT"/boot/vmlinuz-*), AppArmor $(in_root dpkg-query -W -f '${Version}' apparmor)"
    prepare_system
    make_disk
    # shellcheck disable=SC2046,SC2086 # several words
    set -- ${APPARMOR_TESTS:-$(all_tests)}
    while [ $# -gt 0 ]; do
        part=$((part + 1)) tests=$(printf '%s,' "${@:1:PART}")
        (boot "$part" -snapshot -- "confined=${tests%,}" | sed -u "s/^/$part: /" || echo "${@:1:PART}" >>"$SCRATCH/failed") &
        [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
        shift $(($# < PART ? $# : PART))
    done
    wait
    [ ! -e "$SCRATCH/failed" ] || die "not all is in order in the parts with $(tr '\n' ' ' <"$SCRATCH/failed")"
}

release dpkg-buildpackage dh debootstrap mke2fs qemu-system-x86_64 -- "$@"
