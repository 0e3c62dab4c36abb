#!/bin/bash
# An hour of ordinary use of a local store and of Redis: the daemon's memory, descriptors and log do not grow.  make nightly
# runs it.  SOAK_SECONDS: for so long (3600); the first quarter warms up.
E2E_LIMIT=$((${SOAK_SECONDS:=3600} + 200))
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

# work DIRECTORY: leases, flocks, queues, renames and refusals, until it is killed.
work() {
    local i
    for ((i = 0; ; i++)); do
        touch "$1/lease$((i % 50))" && mv "$1/lease$((i % 50))" "$1/moved.$BASHPID" && rm "$1/moved.$BASHPID"
        flock -w 5 "$1/handle$((i % 3))" cat "$1/.leasefs/status" >/dev/null
        flock "$1/queue/job-" true
        ! touch "$1/held"
        ls "$1" >/dev/null
    done >/dev/null 2>&1
}
usage_of() { # PID LOG: kB, descriptors, lines
    echo "$(awk '/^VmRSS/ { print $2 }' "/proc/$1/status") $(find "/proc/$1/fd" -mindepth 1 | wc -l) $(wc -l <"$2")"
}

redis_start
mount_local "$TEST_DIR/store"
workers=() points=("$MNT") daemons=("$DAEMON") logs=("$LOG")
mount_redis
points+=("$MNT") daemons+=("$DAEMON") logs+=("$LOG")
for point in "${points[@]}"; do
    mkdir "$point/queue"
    touch "$point/held"
    for _ in 1 2 3; do
        start work "$point"
        workers+=("$STARTED")
    done
done
pause $((SOAK_SECONDS / 4))
for i in 0 1; do before[i]=$(usage_of "${daemons[i]}" "${logs[i]}"); done
pause $((SOAK_SECONDS - SOAK_SECONDS / 4))
for i in 0 1; do at_end[i]=$(usage_of "${daemons[i]}" "${logs[i]}"); done
for pid in "${workers[@]}"; do end_process "$pid"; done
for i in 0 1; do
    it "after $SOAK_SECONDS s the daemon has no more memory and log than after a quarter of it, and a bounded number of descriptors ($([ $i = 0 ] && echo local || echo Redis))"
    read -r memory descriptors lines <<<"${before[i]}"
    read -r memory_now descriptors_now lines_now <<<"${at_end[i]}"
    say "kB, descriptors, lines: $memory $descriptors $lines, then $memory_now $descriptors_now $lines_now"
    expect_between 1 "$memory_now" $((memory + memory / 10 + 512)) "kB"
    expect_between 1 "$descriptors_now" 300 "descriptors" # it keeps up to 256 for the processes that use it
    expect_between 0 "$lines_now" $((lines + 10)) "lines of the log"
done
finish
