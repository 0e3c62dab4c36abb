#!/bin/bash
# handover.sh: the time from one holder of a flock to the next of 10, 100 and 1000 that wait, on a mount against
# tmpfs, in alternation.  Goal: at most two round trips, and the same for 1000 as for 10.
#
#     tests/bench/handover.sh [WAITERS…]
#
# Environment: ROUNDS (5); see bench.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"

ROUNDS=${ROUNDS:-5}
waiters=$(bench_program stress/waiters) || exit 1
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"
[ $# -gt 0 ] || set -- 10 100 1000

# measure COUNT DIRECTORY PID: microseconds for a hand-over, and the daemon's processor time for it.
measure() {
    local text
    text=$("$waiters" order "$2" --waiters "$1" --daemon "$3") || bench_die "$text"
    [[ $text =~ ^[0-9]+\ waiters:\ ([0-9.]+)\ us\ for\ a\ hand-over(,\ ([0-9.]+)\ us)? ]] || bench_die "$text"
    echo "${BASH_REMATCH[1]} ${BASH_REMATCH[3]:-0}"
}

bench_directory "$BENCH_TMPFS"
tmpfs=$DIRECTORY
bench_directory "$BENCH_TMPFS"
bench_mount "$LEASEFS" -f "local:$DIRECTORY"
printf '%-8s %12s %12s %22s   %s\n' waiters tmpfs leasefs "leasefs, daemon's CPU" ratio
for count; do
    kernel=() lease=() cpu=()
    for ((round = 0; round < ROUNDS; round++)); do
        took=$(measure "$count" "$tmpfs" 0) || exit 1
        kernel+=("${took% *}")
        took=$(measure "$count" "$MNT" "$DAEMON") || exit 1
        lease+=("${took% *}") cpu+=("${took#* }")
    done
    awk -v count="$count" -v kernel="$(bench_median "${kernel[@]}")" -v lease="$(bench_median "${lease[@]}")" \
        -v cpu="$(bench_median "${cpu[@]}")" \
        'BEGIN { printf "%-8d %9.1f us %9.1f us %19.1f us   %.1f\n", count, kernel, lease, cpu, lease / kernel }'
done
