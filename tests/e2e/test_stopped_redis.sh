#!/bin/bash
# No call waits longer than the timeout for Redis servers that stand still: every kind of call.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=stopped.sh
. "$(dirname "$0")/stopped.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

redis_start
mount_backend "$REDIS_URI" ttl=120,timeout=2s

it "every call is answered in time while the server stands still"
stopped_calls 2000 "$REDIS_PID"

it "the same with three independent servers"
for _ in 1 2; do redis_start; done
mount_backend "redlock://127.0.0.1:${redis_ports[0]},127.0.0.1:${redis_ports[1]},127.0.0.1:${redis_ports[2]}" ttl=120,timeout=2s,grace=100ms
granted() { touch "$MNT/probe" 2>/dev/null && rm "$MNT/probe"; }
expect eventually 60 granted
stopped_calls 2000 "${redis_pids[@]}"

finish
