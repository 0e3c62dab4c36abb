#!/bin/bash
# A lock outlives its daemon: the daemon is killed (-9) at random moments and started again as the shipped unit does it,
# while processes of two users, in two mount namespaces, take leases (also by rename and link), flocks, byte ranges, open file description locks
# and tickets, and leave descriptors to their children.  No two hold what excludes each other, an unfenced counter loses
# nothing, and nothing is left when nobody has a file open.
#
# The full size is
#
#     E2E_KILLS=500 E2E_LIMIT=3000 tests/e2e/test_kills.sh
#
# Environment: E2E_KILLS (20); E2E_KILL_KINDS, what the processes take (lease,rename,link,flock,range,ofd,ticket,inherited);
# STRESS_SEED; STRESS_PROGRAMS, the directory of the programs (default: tests/stress of the build directory).
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=kills.sh
. "$(dirname "$0")/kills.sh"

it "a store that ends with its daemon is found faulty"
kills memory 1000 --kills 5
expect_is $? 3 status
expect grep -q '^overlap:' "$TEST_DIR/kills"

it "no lock ends with its daemon on a local store"
expect kills "local:$TEST_DIR/store" 1000 --kills "${E2E_KILLS:-20}" --kinds "$KINDS"

finish
