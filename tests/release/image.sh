#!/bin/bash
# image.sh: builds debian/Containerfile, and tries what its head promises.
#
#   make check-image          as root, with a network; takes some minutes
#
# It needs podman and debootstrap, and no registry: what debootstrap makes is taken for Debian's image.
# shellcheck source=release.sh
. "$(dirname "$0")/release.sh"

BASE=docker.io/library/debian:bookworm-slim
point=/mnt/leasefs-release

engine() { podman --root "$SCRATCH/storage" --runroot "$SCRATCH/run" --cgroup-manager cgroupfs --events-backend file "$@"; }
run() { engine run --network host --cgroups disabled --device /dev/fuse --cap-add SYS_ADMIN --cap-add SYS_PTRACE --security-opt apparmor=unconfined "$@"; }
# awaits COMMAND…: within ten seconds.
awaits() {
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    die "did not come true: $*"
}
is_mounted() { [ "$(findmnt -n -o FSTYPE "$1")" = fuse.leasefs ]; }

inside() {
    [ ! -d /sys/fs/cgroup/unified ] || mount -t cgroup2 leasefs-release /sys/fs/cgroup # crun takes no mixture of both kinds
    mkdir -p "$point"
    mount -t tmpfs leasefs-release "$point"
    mkdir -m 755 "$point/locks"
    mkdir "$SCRATCH/state"
    mount --make-shared "$point"

    make_root
    umount "$ROOT/proc"
    rm "$ROOT/usr/sbin/policy-rc.d"
    say "debian/Containerfile"
    tar -c -C "$ROOT" . | engine import -q - "$BASE"
    (cd "$SCRATCH/leasefs" && quietly "$SCRATCH/image.log" engine build --network host --isolation chroot --pull=never -f debian/Containerfile -t leasefs .)
    engine images --format '{{.Repository}}:{{.Tag}} {{.Size}}'

    say "by itself: a lock is taken and refused inside; SIGTERM ends it with status 0"
    run -d --name alone leasefs >/dev/null
    awaits engine exec alone test -e /mnt/locks/.leasefs/status
    engine exec alone sh -c 'touch /mnt/locks/l && ! touch /mnt/locks/l 2>/dev/null && getfattr -d --absolute-names /mnt/locks/l && rm /mnt/locks/l'
    engine exec alone flock /mnt/locks/f sh -c 'test -e /mnt/locks/f && ! flock -n /mnt/locks/f true'
    engine stop -t 10 alone >/dev/null
    [ "$(engine inspect -f '{{.State.ExitCode}}' alone)" = 0 ] || die "it ended with status $(engine inspect -f '{{.State.ExitCode}}' alone)"

    # Without --pid host, for which podman makes a cgroup, which not every machine that builds releases lets it do: so the
    # daemon sees nobody's processes, and what holds is flock, and what has a term.
    say "for the host and other containers: locks exclude each other"
    run -d --name shared -v "$point:/mnt/shared:shared" -v "$SCRATCH/state:/var/lib/leasefs" leasefs \
        -o allow_other local:/var/lib/leasefs/locks /mnt/shared/locks >/dev/null
    awaits is_mounted "$point/locks"
    exec 9>"$point/locks/host"
    flock 9
    run --rm --entrypoint sh -v "$point/locks:/mnt/locks" leasefs -c \
        '! flock -n /mnt/locks/host true && ! touch /mnt/locks/host 2>/dev/null && flock /mnt/locks/other true'
    exec 9>&-
    run --rm --entrypoint flock -v "$point/locks:/mnt/locks" leasefs /mnt/locks/host true

    say "killed and started again: what has a term is still held"
    touch "$point/locks/kept"
    setfattr -n user.lease.ttl -v 5m "$point/locks/kept"
    engine kill shared >/dev/null
    engine wait shared >/dev/null
    engine start shared >/dev/null
    awaits test -e "$point/locks/kept"
    ! touch "$point/locks/kept" 2>/dev/null || die "a lock was given twice"
    engine stop -t 10 shared >/dev/null
    ! is_mounted "$point/locks" || die "its mount is left"
    engine rm -a >/dev/null
    engine rmi -a -f >/dev/null
    umount "$point"
    rmdir "$point"
}

release dpkg-buildpackage podman debootstrap findmnt -- "$@"
