#!/bin/bash
# redis_handover.sh: the time from a release to when the next one of 2, 10 and 100 that wait has the lock, spread over two
# mounts of a Redis server, against redis-py's Lock and node-redlock, as they come, in two processes; in alternation.
# Also what that is to the server: requests and commands for a hand-over, and commands a second while all wait.  Goal:
# at most two requests for a hand-over, and nothing to speak of while they wait.
#
#     tests/bench/redis_handover.sh [WAITERS…]
#
# node-redlock is of npm's registry, at the version of tests/e2e/interop, and passed over with the reason where that is
# not reached.  Environment: ROUNDS (3); IDLE (4), seconds that all wait in the first round; MODULES, a directory with node_modules; see
# bench.sh and redis.sh.
# shellcheck source-path=SCRIPTDIR source=bench.sh
. "$(dirname "$0")/bench.sh"
# shellcheck source-path=SCRIPTDIR source=redis.sh
. "$(dirname "$0")/redis.sh"

ROUNDS=${ROUNDS:-3}
IDLE=${IDLE:-4}
SOURCE=$(cd "$(dirname "$0")" && pwd)
[ -x "$LEASEFS" ] || bench_die "$LEASEFS is missing: build it, or set LEASEFS"
[ $# -gt 0 ] || set -- 2 10 100

# The clients that there are, in $clients.
find_clients() {
    local reason=
    clients=(leasefs)
    if /usr/bin/python3 -c 'import redis' 2>/dev/null; then
        clients+=(redis-py)
    else
        echo "redis-py is passed over: no python3-redis"
    fi
    if [ -z "${MODULES:-}" ]; then
        bench_directory "$BENCH_DISK"
        MODULES=$DIRECTORY
        cp "$SOURCE"/../e2e/interop/package*.json "$MODULES"
        if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
            reason="no node or npm"
        elif ! (cd "$MODULES" && timeout 60 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1) \
            >"$MODULES/log" 2>&1; then
            reason="npm's registry did not give it: $(grep -m 1 'npm ERR!\|npm error' "$MODULES/log")"
        fi
    fi
    if [ -n "$reason" ]; then echo "node-redlock is passed over: $reason"; else clients+=(node-redlock); fi
}

# begin NUMBER WHO MOUNTPOINT COUNT [hold]: half of the waiters, in a process.
begin() {
    local who=$2 mnt=$3 count=$4
    local -a run=(/usr/bin/python3 "$SOURCE/handover.py")
    case $who in
    leasefs) run+=(flock "$mnt/lock" "$count" "${@:5}") ;;
    redis-py) run+=(redis-py "$REDIS_PORT" "$count" "${@:5}") ;;
    node-redlock) run=(node "$SOURCE/redis_handover.js" "$REDIS_PORT" "$count" "$MODULES" "${@:5}") ;;
    esac
    mkfifo "$scratch/in$1"
    : >"$scratch/out$1"
    "${run[@]}" <"$scratch/in$1" >"$scratch/out$1" &
    halves[$1]=$!
    if [ "$1" = 0 ]; then exec 7>"$scratch/in0"; else exec 8>"$scratch/in1"; fi
    rm "$scratch/in$1"
    until grep -q ready "$scratch/out$1"; do
        kill -0 "${halves[$1]}" 2>/dev/null || bench_die "$who did not begin"
        sleep 0.01
    done
}

# requests_of WHO: that clients have sent since the counters were reset.  Calls of scripts are counted, too; of these
# commands they call none.
requests_of() {
    case $1 in
    leasefs) echo $(($(bench_redis_trips "$MNT" "$other") - trips)) ;;
    redis-py) echo $(($(bench_redis_count set) + $(bench_redis_count evalsha))) ;;
    node-redlock) echo $(($(bench_redis_count evalsha) + $(bench_redis_count eval))) ;;
    esac
}

# round WHO COUNT SECONDS: in $TOOK: the median hand-over and the longest in microseconds, requests and commands for one, requests and
# commands a second while all wait.
round() {
    local who=$1 count=$2 seconds=$3 idle tries=0
    local -a halves=()
    bench_redis_cli FLUSHALL >/dev/null
    begin 0 "$who" "$MNT" $((count / 2)) hold
    begin 1 "$who" "$other" $((count - count / 2))
    echo wait >&7
    echo wait >&8
    if [ "$who" = leasefs ]; then
        until [ "$(getfattr --only-values -n user.lease.waiters "$MNT/lock" 2>/dev/null)" = "$count" ]; do
            tries=$((tries + 1))
            [ "$tries" -lt 500 ] || bench_die "not all wait"
            sleep 0.02
        done
    else
        sleep 1 # nobody knows how many wait
    fi
    bench_redis_reset
    trips=$(bench_redis_trips "$MNT" "$other")
    sleep "$seconds"
    idle="$(requests_of "$who") $(bench_redis_count all)"
    bench_redis_reset
    trips=$(bench_redis_trips "$MNT" "$other")
    echo release >&8
    echo release >&7
    exec 7>&- 8>&-
    wait "${halves[@]}" || bench_die "$who failed"
    awk '$1 == "-" { print 0, $2 } /^[0-9]/' "$scratch/out0" "$scratch/out1" | sort -n |
        awk 'NR > 1 { printf "%.0f\n", ($1 - released) / 1000 } { released = $2 }' | sort -n >"$scratch/gaps"
    [ "$(wc -l <"$scratch/gaps")" -eq "$count" ] || bench_die "$who: not all had the lock"
    TOOK=$(awk -v idle="$idle" -v seconds="$seconds" -v requests="$(requests_of "$who")" \
        -v commands="$(bench_redis_count all)" '{ gap[NR] = $1 } END {
            printf "%s %s %.2f %.1f", gap[int((NR + 1) / 2)], gap[NR], requests / NR, commands / NR
            split(idle, each, " ")
            if (seconds) printf " %.0f %.0f", each[1] / seconds, each[2] / seconds
        }' "$scratch/gaps")
}

column() { # NUMBER LINE…: its median
    local number=$1
    local -a values
    shift
    mapfile -t values < <(printf '%s\n' "$@" | cut -d ' ' -f "$number")
    bench_median "${values[@]}"
}

row() { # WHO COUNT LINE…
    local who=$1 count=$2
    shift 2
    printf '%-8s %-13s %10s us %10s us %10s %10s %10s/s %10s/s   %s\n' "$count" "$who" "$(column 1 "$@")" "$(column 2 "$@")" \
        "$(column 3 "$@")" "$(column 4 "$@")" "$(column 5 "$1")" "$(column 6 "$1")" \
        "$(awk -v a="$(column 1 "$@")" -v b="$(column 1 "${of_leasefs[@]}")" 'BEGIN { printf "%.1f", a / b }')"
}

find_clients
bench_directory "$BENCH_TMPFS"
scratch=$DIRECTORY
bench_redis
bench_mount "$LEASEFS" -f "redis+unix://$REDIS_SOCKET"
other=$MNT
bench_mount "$LEASEFS" -f "redis+unix://$REDIS_SOCKET"
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg)"
printf '%-8s %-13s %13s %13s %10s %10s %25s   %s\n' waiters with 'hand-over' longest requests commands \
    'the same while all wait' ratio
for count; do
    declare -A results=()
    for ((i = 0; i < ROUNDS; i++)); do
        for who in "${clients[@]}"; do
            round "$who" "$count" "$((i == 0 ? IDLE : 0))"
            results[$who]+="$TOOK"$'\n'
        done
    done
    mapfile -t of_leasefs <<<"${results[leasefs]%$'\n'}"
    for who in "${clients[@]}"; do
        mapfile -t lines <<<"${results[$who]%$'\n'}"
        row "$who" "$count" "${lines[@]}"
    done
done
