#!/bin/bash
# The queue that a directory is, under many processes: served strictly by number; a
# semaphore whose members are killed.
#
# The full size is
#
#     STRESS_TICKETS=200 STRESS_MEMBERS=50 STRESS_STEPS=1000 STRESS_DEPTHS="100 1000 10000" E2E_LIMIT=1200 \
#         tests/e2e/test_tickets.sh
#
# Environment: STRESS_TICKETS, processes that race for tickets (200); STRESS_MEMBERS,
# of the semaphore (50); STRESS_STEPS, of leaving and killing (60); STRESS_DEPTHS, of
# the queues whose costs are printed ("100 1000"); STRESS_SEED; STRESS_PROGRAMS, the
# directory of the programs (default: tests/stress of the build directory).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

TICKETS=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/tickets
SEED=${STRESS_SEED:-$SRANDOM}
[ -x "$TICKETS" ] || skip_all "no program tickets: make check builds it, or set STRESS_PROGRAMS"

# run ARGUMENT…: its status; what it prints is shown.
run() {
    local status=0
    "$TICKETS" "$@" --seed "$SEED" >"$TEST_DIR/output" 2>&1 || status=$?
    sed 's/^/# /' "$TEST_DIR/output"
    return "$status"
}

mount_local "$TEST_DIR/store"

it "processes that race for tickets are served strictly in the order of the numbers, of which none is missing"
expect run order "$MNT" --processes "${STRESS_TICKETS:-200}"

it "a semaphore of 3 whose members are killed: never more than 3 inside, and soon as many as may be"
expect run semaphore "$MNT" --processes "${STRESS_MEMBERS:-50}" --width 3 --steps "${STRESS_STEPS:-60}"

it "a ticket's position is right with many before it, and a queue of them is served"
for depth in ${STRESS_DEPTHS:-100 1000}; do
    expect run depth "$MNT" --processes "$depth"
done

finish
