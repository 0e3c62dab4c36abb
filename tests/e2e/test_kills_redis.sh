#!/bin/bash
# A lock on Redis outlives its daemon if the next one comes within its term: as test_kills.sh, which also has the
# environment.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=kills.sh
. "$(dirname "$0")/kills.sh"

redis_start

it "no lock on Redis ends with its daemon"
expect kills "$REDIS_UNIX_URI" 10000 --kills "${E2E_KILLS:-15}" --kinds "$KINDS"

finish
