#!/bin/bash
# A thousand processes that wait for one lock; waiters that leave; waits that are
# interrupted all the time.
#
# The full size is
#
#     STRESS_WAITERS="10 100 1000" STRESS_LEAVERS=100 STRESS_INTERRUPTS=100000 E2E_LIMIT=1200 tests/e2e/test_waiters.sh
#
# Environment: STRESS_WAITERS, how many wait, one run for each number ("10 100 1000");
# STRESS_LEAVERS (20); STRESS_INTERRUPTS, waits to interrupt (5000); STRESS_LIMIT,
# milliseconds after which who left must be out of the queue (1000; promised are 100);
# STRESS_SEED; STRESS_PROGRAMS, the directory of the programs (default: tests/stress
# of the build directory).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

PROGRAMS=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}
[ -x "$PROGRAMS/waiters" ] || skip_all "no program waiters: make check builds it, or set STRESS_PROGRAMS"

# run PROGRAM ARGUMENT…: its status; what it prints is shown.
run() {
    local status=0
    "$PROGRAMS/$1" "${@:2}" >"$TEST_DIR/output" 2>&1 || status=$?
    sed 's/^/# /' "$TEST_DIR/output"
    return "$status"
}

mount_local "$TEST_DIR/store"
PLAIN=$(mktemp -d /dev/shm/leasefs-e2e.XXXXXX) || PLAIN=$TEST_DIR

for count in ${STRESS_WAITERS:-10 100 1000}; do
    it "$count processes that wait for a flock get it in the order in which they came, one at a time"
    expect run waiters order "$MNT" --waiters "$count" --daemon "$DAEMON"
    say "the same on tmpfs:"
    run waiters order "$PLAIN" --waiters "$count" >"$TEST_DIR/tmpfs" # its order is the kernel's affair
    tail -1 "$TEST_DIR/tmpfs"
done

it "who gives up with flock -w 1, Ctrl-C or kill -9 is out of the queue at once and never granted the lock"
expect run waiters leave "$MNT" --waiters "${STRESS_LEAVERS:-20}" --limit "${STRESS_LIMIT:-1000}"

it "an interrupted wait ends with EINTR or the lock, and nothing else; what crosses is given back"
expect run interrupts "$MNT" --count "${STRESS_INTERRUPTS:-5000}" --seed "${STRESS_SEED:-$SRANDOM}"

[ "$PLAIN" = "$TEST_DIR" ] || rm -rf "$PLAIN"
finish
