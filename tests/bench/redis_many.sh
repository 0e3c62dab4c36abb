#!/bin/bash
# redis_many.sh: many that take and release locks of their own at once, through one mount of a Redis server and through
# two, against as many connections that send the server the same requests: what it does when nothing stands before it.
# (redis-benchmark sends one request over and over, and cannot release what it has acquired; so a program of ours does,
# with the requests of one cycle as MONITOR shows them.)  In alternation.
#
#     tests/bench/redis_many.sh [COUNT…]        default: 64
#
# Environment: ROUNDS (5), MS of a measurement (1500); see bench.sh and redis.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"
# shellcheck source-path=SCRIPTDIR source=redis.sh
. "$(dirname "$0")/redis.sh"

ROUNDS=${ROUNDS:-5}
MS=${MS:-1500}
NAME=redis-many-0000 # as redis_many.c knows it
many=$(bench_program bench/redis_many) || exit 1
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"
[ $# -gt 0 ] || set -- 64

# What a cycle says to the server, in $REQUESTS.
record() {
    local monitor tries=0
    REQUESTS=$(dirname "$REDIS_SOCKET")/requests
    redis-cli -s "$REDIS_SOCKET" MONITOR >"$REQUESTS.all" &
    monitor=$!
    until grep -q '^OK' "$REQUESTS.all" 2>/dev/null; do sleep 0.01; done
    (set -C && : >"$MNT/$NAME" && rm "$MNT/$NAME") || bench_die "no cycle through $MNT"
    until bench_redis_cli PING >/dev/null && grep -q '"PING"' "$REQUESTS.all"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || bench_die "MONITOR shows nothing"
        sleep 0.01
    done
    kill "$monitor"
    wait "$monitor" 2>/dev/null
    grep -v ' lua\]' "$REQUESTS.all" | grep -E '"(EVALSHA|EXISTS)"' | awk -F '"' '!seen[$4]++' >"$REQUESTS" # rm looks it up as well
}

# measure WHAT: cycles for a second.
measure() {
    case $1 in
    server) "$many" server "$MS" "$count" "$REDIS_SOCKET" <"$REQUESTS" ;;
    one) "$many" mounts "$MS" "$count" "$MNT" ;;
    two) "$many" mounts "$MS" "$count" "$MNT" "$other" ;;
    esac
}

# row WHAT CPU RATE…
row() {
    local what=$1 cpu=$2
    shift 2
    printf '%-10s %-11s %8d (%d to %d) %10.1f us   %s\n' "$count" "$what" "$(bench_median "$@")" \
        "$(printf '%s\n' "$@" | sort -n | head -n 1)" "$(printf '%s\n' "$@" | sort -n | tail -n 1)" "$cpu" \
        "$(awk -v rate="$(bench_median "$@")" -v plain="$(bench_median "${server[@]}")" 'BEGIN { printf "%.2f", rate / plain }')"
}

bench_redis
bench_mount "$LEASEFS" -f "redis+unix://$REDIS_SOCKET"
other=$MNT
bench_mount "$LEASEFS" -f "redis+unix://$REDIS_SOCKET"
record
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg); requests of a cycle: $(wc -l <"$REQUESTS")"
printf '%-10s %-11s %-27s %11s   %s\n' cyclers through 'cycles/s: median (spread)' 'server CPU' ratio
for count; do
    declare -a server=() one=() two=()
    declare -A cpu=()
    for ((round = 0; round < ROUNDS; round++)); do
        for what in server one two; do
            before=$(bench_redis_cpu)
            rate=$(measure "$what") || exit 1
            declare -n rates=$what
            rates+=("$rate")
            cpu[$what]=$(awk -v used=$(($(bench_redis_cpu) - before)) -v ms="$MS" -v rate="$rate" \
                'BEGIN { printf "%.1f", used / (rate * (ms + 100) / 1000) }')
        done
    done
    row 'no mount' "${cpu[server]}" "${server[@]}"
    row 'one mount' "${cpu[one]}" "${one[@]}"
    row 'two mounts' "${cpu[two]}" "${two[@]}"
done
