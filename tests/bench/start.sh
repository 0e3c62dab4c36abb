#!/bin/bash
# start.sh: how long a daemon takes from its start to its first answer with a million leases in the journal of a killed
# one, and its processor time for that, against a start with an empty journal, in alternation.  Goal: 1 s.  The last
# line is for programs: words NAME=VALUE.
#
#     tests/bench/start.sh [COUNT]        1000000, a local store on tmpfs
#
# Environment: ROUNDS (5); see bench.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"

ROUNDS=${ROUNDS:-5}
COUNT=${1:-1000000}
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"

# crash: the daemon dies, and its mount with it.
crash() {
    kill -9 "$DAEMON"
    wait "$DAEMON" 2>/dev/null
    umount -l "$MNT"
    mount_points=() daemons=()
}

# start STATE: seconds, and seconds of processor time, of a start with a copy of that state, in $TOOK.
start() {
    local before after state
    bench_directory "$BENCH_TMPFS"
    state=$DIRECTORY
    cp "$1"/* "$state" && sync "$state"/*
    before=$(date +%s%N)
    bench_mount "$LEASEFS" -f -o ttl=20h "local:$state"
    after=$(date +%s%N)
    TOOK=$(awk -v ns=$((after - before)) -v tick="$(getconf CLK_TCK)" \
        '{ sub(/.*\) /, ""); print ns / 1e9, ($12 + $13) / tick }' "/proc/$DAEMON/stat")
    crash
    rm -r "$state"
}

bench_directory "$BENCH_TMPFS"
empty=$DIRECTORY
bench_mount "$LEASEFS" -f -o ttl=20h "local:$empty"
crash
bench_directory "$BENCH_TMPFS"
full=$DIRECTORY
bench_mount "$LEASEFS" -f -o ttl=20h "local:$full"
for ((i = 0; i < COUNT; i++)); do
    : >"$MNT/lease$i" || exit 1
done
crash
nothing=() all=() cpu=()
for ((round = 0; round < ROUNDS; round++)); do
    start "$empty"
    nothing+=("${TOOK% *}")
    start "$full"
    all+=("${TOOK% *}") cpu+=("${TOOK#* }")
done
awk -v count="$COUNT" -v none="$(bench_median "${nothing[@]}")" -v all="$(bench_median "${all[@]}")" \
    -v cpu="$(bench_median "${cpu[@]}")" -v bytes="$(stat -c %s "$full/journal")" 'BEGIN {
    printf "start with %d leases, a journal of %.0f MB: %.2f s, processor time %.2f s; with none: %.2f s\n", count,
           bytes / 1e6, all, cpu, none
    printf "row=start leases=%d seconds=%.3f cpu_seconds=%.3f reference=empty reference_seconds=%.3f\n", count, all, cpu,
           none
}'
