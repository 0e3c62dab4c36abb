# shellcheck shell=bash
# redis.sh: a Redis server for a measurement, and what it counts.  A script sources it after bench.sh; the server is its
# own (a port of 127.0.0.1, a socket, nothing on disk), and ends with it.
#
#     bench_redis                 $REDIS_SOCKET, $REDIS_PORT, $REDIS_PID
#     bench_redis_reset           counters from 0
#     bench_redis_count COMMAND   how often it was called since, by clients and by scripts; `all`: everything
#     bench_redis_trips MOUNT…    requests that mounts have sent since they were made
#     bench_redis_cpu             microseconds of processor time since the server's start
#
# Environment: REDIS_SERVER (redis-server).

command -v "${REDIS_SERVER:=redis-server}" >/dev/null || bench_die "no $REDIS_SERVER (package redis-server)"
command -v redis-cli >/dev/null || bench_die "no redis-cli (package redis-tools)"

REDIS_PID=
bench_redis() {
    local tries
    bench_directory "$BENCH_TMPFS"
    REDIS_SOCKET=$DIRECTORY/socket
    for tries in {1..20}; do
        REDIS_PORT=$((20000 + SRANDOM % 12000)) # below those that the kernel gives to clients
        "$REDIS_SERVER" --bind 127.0.0.1 --port "$REDIS_PORT" --unixsocket "$REDIS_SOCKET" --dir "$DIRECTORY" \
            --logfile "$DIRECTORY/log" --daemonize no --save '' </dev/null >/dev/null 2>&1 &
        REDIS_PID=$!
        while kill -0 "$REDIS_PID" 2>/dev/null; do
            [ "$(bench_redis_cli PING 2>/dev/null)" != PONG ] || return 0
            sleep 0.05
        done
    done
    bench_die "redis-server did not come up in $tries tries: $(tail -n 1 "$DIRECTORY/log")"
}

bench_redis_end() {
    [ -z "$REDIS_PID" ] || kill "$REDIS_PID" 2>/dev/null
    REDIS_PID=
}
trap 'bench_end; bench_redis_end' EXIT

bench_redis_cli() { timeout 20 redis-cli -s "$REDIS_SOCKET" "$@"; }
bench_redis_reset() { bench_redis_cli CONFIG RESETSTAT >/dev/null; }

bench_redis_count() {
    bench_redis_cli INFO commandstats | awk -F '[_:=,]' -v which="$1" '
        /^cmdstat_/ && $2 !~ /^(info|config)/ && (which == "all" || $2 == which) { calls += $4 }
        END { print calls + 0 }'
}

bench_redis_cpu() {
    bench_redis_cli INFO cpu | awk -F : '/^used_cpu_(sys|user)_main_thread/ { used += $2 } END { printf "%.0f\n", used * 1e6 }'
}

bench_redis_trips() {
    local mount
    for mount; do cat "$mount/.leasefs/metrics"; done |
        awk '$1 == "leasefs_backend_round_trips_total" { sum += $2 } END { printf "%.0f\n", sum }'
}
