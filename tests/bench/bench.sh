# shellcheck shell=bash
# bench.sh: what the measurements on real mounts share.  A script sources it and
# calls its functions; what it mounted and started is gone when it ends.
#
# Environment: LEASEFS, the daemon (default: leasefs of the current directory);
# BUILT, where `make bench-programs` and `make check` put the programs (default: the
# current directory); BENCH_DISK and BENCH_TMPFS, where stores are made (default:
# $TMPDIR or /var/tmp, and /dev/shm).

set -u
export LC_ALL=C

LEASEFS=${LEASEFS:-$PWD/leasefs}
BUILT=${BUILT:-$PWD}
BENCH_DISK=${BENCH_DISK:-${TMPDIR:-/var/tmp}}
BENCH_TMPFS=${BENCH_TMPFS:-/dev/shm}
MNT=
DAEMON=
declare -a mount_points=() daemons=() directories=()

bench_die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# bench_program NAME: its path, as $BUILT/tests/NAME.
bench_program() {
    [ -x "$BUILT/tests/$1" ] || bench_die "$BUILT/tests/$1 is missing: run make bench-programs, or set BUILT"
    echo "$BUILT/tests/$1"
}

# A new directory in $DIRECTORY, below the one given.
bench_directory() {
    DIRECTORY=$(mktemp -d "$1/leasefs-bench.XXXXXX") || exit 1
    directories+=("$DIRECTORY")
}

# bench_mount COMMAND…: runs it in the foreground with a mount point as the last argument, and waits until it
# answers.  $MNT, $DAEMON.
bench_mount() {
    local before tries=0
    bench_directory "$BENCH_DISK"
    MNT=$DIRECTORY
    before=$(stat -c %d "$MNT")
    "$@" "$MNT" >>"${BENCH_LOG:-/dev/null}" 2>&1 &
    DAEMON=$!
    mount_points+=("$MNT")
    daemons+=("$DAEMON")
    until [ "$(stat -c %d "$MNT" 2>/dev/null || echo "$before")" != "$before" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 500 ] || ! kill -0 "$DAEMON" 2>/dev/null; then
            bench_die "$1 does not mount"
        fi
        sleep 0.02
    done
}

# Ends all mounts, in order, with their daemons.
bench_unmount() {
    local i
    for i in "${!mount_points[@]}"; do
        umount "${mount_points[i]}" 2>/dev/null || fusermount3 -u "${mount_points[i]}" 2>/dev/null
        kill "${daemons[i]}" 2>/dev/null
        wait "${daemons[i]}" 2>/dev/null
    done
    mount_points=() daemons=()
}

bench_end() {
    bench_unmount
    [ "${#directories[@]}" -eq 0 ] || rm -rf --one-file-system "${directories[@]}"
}
trap bench_end EXIT
trap 'exit 1' INT TERM HUP

# bench_median NUMBER…
bench_median() {
    printf '%s\n' "$@" | sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}
