#!/bin/bash
# redis_cycle.sh: the cost of open(O_CREAT|O_EXCL), close, unlink through a mount of a Redis server against a C program
# that says SET NX PX and compare-and-delete to the same server, with hiredis; in the order A B B A until the rounds are
# through.  Then what a cycle is to the server: requests (goal: a look-up, an acquire and a release), all the commands
# that these are made of, and processor time.
#
#     tests/bench/redis_cycle.sh [WAY…]        socket, tcp; default: both
#
# Environment: ROUNDS (5), CYCLES of a block (2000); see bench.sh and redis.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"
# shellcheck source-path=SCRIPTDIR source=redis.sh
. "$(dirname "$0")/redis.sh"

ROUNDS=${ROUNDS:-5}
CYCLES=${CYCLES:-2000}
WARM_UP=200 # of both programs
cycle=$(bench_program bench/cycle) || exit 1
plain=$(bench_program bench/redis_cycle) || exit 1
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"
[ $# -gt 0 ] || set -- socket tcp

# block WHO: a cycle's median in nanoseconds, and what a cycle was to the server: requests, commands, nanoseconds of
# its processor.
block() {
    local median requests cpu
    local -a run=("$cycle" "$MNT/lock" "$CYCLES")
    [ "$1" = leasefs ] || run=("$plain" "$server" plain "$CYCLES")
    bench_redis_reset
    requests=$(bench_redis_trips "$MNT")
    cpu=$(bench_redis_cpu)
    read -r median _ <<<"$("${run[@]}")"
    [ -n "$median" ] || bench_die "no result"
    cpu=$(($(bench_redis_cpu) - cpu))
    requests=$(($(bench_redis_trips "$MNT") - requests))
    [ "$1" = leasefs ] || requests=$(($(bench_redis_count set) + $(bench_redis_count evalsha)))
    awk -v n=$((CYCLES + WARM_UP)) -v median="$median" -v requests="$requests" -v commands="$(bench_redis_count all)" \
        -v cpu="$cpu" 'BEGIN { printf "%s %.2f %.1f %.0f\n", median, requests / n, commands / n, cpu * 1000 / n }'
}

# column NUMBER LINE…: of that column the median, the least and the greatest.
column() {
    local number=$1
    shift
    printf '%s\n' "$@" | awk -v number="$number" '{ print $number }' | sort -n |
        awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)], value[1], value[NR] }'
}

# compare WAY: in blocks A B B A.
compare() {
    local i who took server=$REDIS_SOCKET uri=redis+unix://$REDIS_SOCKET
    local -a leasefs=() plain_took=()
    [ "$1" = socket ] || server=$REDIS_PORT uri=redis://127.0.0.1:$REDIS_PORT
    bench_mount "$LEASEFS" -f "$uri"
    for ((i = 0; i < ROUNDS; i++)); do
        for who in plain leasefs leasefs plain; do
            took=$(block "$who") || exit 1
            if [ "$who" = leasefs ]; then leasefs+=("$took"); else plain_took+=("$took"); fi
        done
    done
    bench_unmount
    row "$1" plain "${plain_took[@]}"
    row "$1" leasefs "${leasefs[@]}"
    awk -v a="$(column 1 "${leasefs[@]}")" -v b="$(column 1 "${plain_took[@]}")" -v c="$(column 4 "${leasefs[@]}")" \
        -v d="$(column 4 "${plain_took[@]}")" \
        'BEGIN { printf "         ratio    %9.2f %46.2f\n", a / b, c / d }'
}

row() { # WAY WHO LINE…
    local way=$1 who=$2
    shift 2
    awk -v way="$way" -v who="$who" -v time="$(column 1 "$@")" -v requests="$(column 2 "$@")" \
        -v commands="$(column 3 "$@")" -v cpu="$(column 4 "$@")" 'BEGIN {
            split(time, t, " "); split(requests, r, " "); split(commands, c, " "); split(cpu, p, " ")
            printf "%-8s %-8s %6.1f us (%.1f to %.1f) %10s %10s %8.1f us\n", way, who, t[1] / 1000, t[2] / 1000,
                t[3] / 1000, r[1], c[1], p[1] / 1000
        }'
}

bench_redis
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg)"
printf '%-8s %-8s %-27s %10s %10s %11s\n' way who 'cycle: median (spread)' requests commands 'server CPU'
for way; do
    case $way in
    socket | tcp) compare "$way" ;;
    *) bench_die "usage: redis_cycle.sh [socket|tcp]…" ;;
    esac
done
