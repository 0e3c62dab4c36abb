#!/bin/bash
# million.sh: a million leases of one process: the daemon's memory for each (goal: 400 bytes), acquire against its
# cost with a thousand (goal: 1.3), how often the daemon wakes in ten seconds (goal: never), and the slowest request
# while all end within one second (goal: 10 ms).
#
#     tests/bench/million.sh [COUNT [BACKEND]]        1000000, a local store on tmpfs
#
# Environment: see bench.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"

million=$(bench_program bench/million) || exit 1
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"
backend=${2:-}
if [ -z "$backend" ]; then
    bench_directory "$BENCH_TMPFS"
    backend=local:$DIRECTORY
fi
bench_mount "$LEASEFS" -f -o ttl=2h "$backend"
"$million" "$MNT" "${1:-1000000}" "$DAEMON"
