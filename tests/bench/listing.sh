#!/bin/bash
# listing.sh: the time of `ls -la` of a directory of 100,000 leases on a mount against as many empty files on tmpfs, in
# alternation.  Goal: 1 s.  The last line is for programs: words NAME=VALUE.
#
#     tests/bench/listing.sh [COUNT]
#
# Environment: ROUNDS (5); see bench.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"

ROUNDS=${ROUNDS:-5}
COUNT=${1:-100000}
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"

# fill DIRECTORY: makes the files; on a mount they are leases of this shell.
fill() {
    local i
    mkdir "$1/many" || exit 1
    for ((i = 0; i < COUNT; i++)); do
        : >"$1/many/lease$i" || exit 1
    done
}

# list DIRECTORY: seconds.
list() {
    local TIMEFORMAT=%R
    { time ls -la "$1/many" >/dev/null; } 2>&1
}

bench_directory "$BENCH_TMPFS"
tmpfs=$DIRECTORY
bench_directory "$BENCH_TMPFS"
bench_mount "$LEASEFS" -f -o ttl=2h "local:$DIRECTORY"
fill "$tmpfs"
fill "$MNT"
kernel=() lease=()
for ((round = 0; round < ROUNDS; round++)); do
    kernel+=("$(list "$tmpfs")") lease+=("$(list "$MNT")")
done
awk -v count="$COUNT" -v kernel="$(bench_median "${kernel[@]}")" -v lease="$(bench_median "${lease[@]}")" 'BEGIN {
    printf "ls -la of %d names: %.2f s, on tmpfs %.2f s: %.2f\n", count, lease, kernel, lease / kernel
    printf "row=listing names=%d seconds=%.3f reference=tmpfs reference_seconds=%.3f ratio=%.3f\n", count, lease, kernel,
           lease / kernel
}'
