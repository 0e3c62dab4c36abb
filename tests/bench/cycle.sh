#!/bin/bash
# cycle.sh: the cost of open(O_CREAT|O_EXCL), close, unlink through the mount against a FUSE filesystem that does
# nothing.  Both are mounted at once, and measured in the order A B B A until the rounds are through; daemon and program
# on one CPU, and where the scheduler puts them.  Goal: 1.10.  Prints whether the kernel sent both the same requests.
#
#     tests/bench/cycle.sh [BACKEND…]        memory, tmpfs, disk (local stores there); default: all
#
# Environment: ROUNDS (10), CYCLES of a block (5000); CPU (the last one); see bench.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"

ROUNDS=${ROUNDS:-10}
CYCLES=${CYCLES:-5000}
CPU=${CPU:-$(($(nproc) - 1))}
cycle=$(bench_program bench/cycle) || exit 1
nullfs=$(bench_program bench/nullfs) || exit 1
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"
[ $# -gt 0 ] || set -- memory tmpfs disk

# The store that a word of the command line stands for, in $BACKEND.
backend_of() {
    case $1 in
    memory) BACKEND=memory ;;
    tmpfs) bench_directory "$BENCH_TMPFS" && BACKEND=local:$DIRECTORY ;;
    disk) bench_directory "$BENCH_DISK" && BACKEND=local:$DIRECTORY ;;
    *) bench_die "usage: cycle.sh [memory|tmpfs|disk]…" ;;
    esac
}

# requests COMMAND…: what the kernel asks for in a cycle, in $REQUESTS, by libfuse's debug output; cycle adds 200 to warm up.
requests() {
    local log
    bench_directory "$BENCH_DISK"
    log=$DIRECTORY/log
    BENCH_LOG=$log bench_mount "$@"
    : >"$log"
    "$cycle" "$MNT/lock" 100 >/dev/null
    bench_unmount
    REQUESTS=$(grep -oE 'opcode: [A-Z_]+' "$log" | sort | uniq -c | awk '{ printf " %s %.2g", $3, $1 / 300 }')
}

# block MOUNTPOINT: the median of one cycle, in nanoseconds.
block() {
    local median
    read -r median _ <<<"$("${on_cpu[@]}" "$cycle" "$1/lock" "$CYCLES")"
    [ -n "$median" ] || bench_die "no result"
    echo "$median"
}

# compare WORD: both mounted, in blocks A B B A.
compare() {
    local null_mnt mnt took i
    local -a null=() lease=()
    backend_of "$1"
    bench_mount "${on_cpu[@]}" "$nullfs"
    null_mnt=$MNT
    bench_mount "${on_cpu[@]}" "$LEASEFS" -f "$BACKEND"
    for ((i = 0; i < ROUNDS; i++)); do
        for mnt in "$null_mnt" "$MNT" "$MNT" "$null_mnt"; do
            took=$(block "$mnt") || exit 1
            if [ "$mnt" = "$MNT" ]; then lease+=("$took"); else null+=("$took"); fi
        done
    done
    bench_unmount
    null_median=$(bench_median "${null[@]}")
    lease_median=$(bench_median "${lease[@]}")
    awk -v what="$1" -v how="$2" -v null="$null_median" -v lease="$lease_median" \
        'BEGIN { printf "%-8s %-9s %8.2f us %8.2f us   %.2f\n", what, how, null / 1000, lease / 1000, lease / null }'
}

requests "$nullfs" -d
echo "requests for a cycle, nullfs: $REQUESTS"
requests "$LEASEFS" -d memory
echo "requests for a cycle, leasefs:$REQUESTS"
printf '%-8s %-9s %11s %11s   %s\n' store CPU nullfs leasefs ratio
for word; do
    on_cpu=(taskset -c "$CPU")
    compare "$word" one
    on_cpu=()
    compare "$word" any
done
