#!/bin/bash
# A lock on three Redis servers that know nothing of each other outlives its daemon if the next one comes within its term:
# as test_kills.sh, which also has the environment.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
E2E_KILL_KINDS=${E2E_KILL_KINDS:-lease,flock,inherited} # there are no ranges and no queues
# shellcheck source=kills.sh
. "$(dirname "$0")/kills.sh"

for _ in 1 2 3; do redis_start; done
servers=redlock://127.0.0.1:${redis_ports[0]},127.0.0.1:${redis_ports[1]},127.0.0.1:${redis_ports[2]}
# so that they have votes from then on
KILLS_OPTIONS=grace=1s
old() { redis_cli info server | grep -q "^uptime_in_seconds:\([3-9]\|[1-9][0-9]\)"; }
expect eventually 20 old

it "no lock on several masters ends with its daemon"
expect kills "$servers" 10000 --kills "${E2E_KILLS:-15}" --kinds "$KINDS" --exclusive

finish
