#!/bin/bash
# Many processes take leases, flocks and fcntl locks at random, over the same names,
# while they are stopped, continued and killed: no two are ever told that they hold
# what excludes each other, no fencing token goes back, nothing is left behind.
#
# The full size is
#
#     STRESS_CLIENTS=64 STRESS_OPERATIONS=10000 E2E_LIMIT=3000 tests/e2e/test_history.sh
#
# Environment: STRESS_CLIENTS, processes (16); STRESS_OPERATIONS, of each (500);
# STRESS_NAMES (100); STRESS_KILL_EVERY and STRESS_STOP_EVERY, milliseconds on average
# for one process (1500, 100); STRESS_SEED; STRESS_PROGRAMS, the directory of the
# program history (default: tests/stress of the build directory).

# What the sanitizer keeps of freed memory is not the daemon's.
export ASAN_OPTIONS="quarantine_size_mb=4${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

CLIENTS=${STRESS_CLIENTS:-16}
OPERATIONS=${STRESS_OPERATIONS:-500}
NAMES=${STRESS_NAMES:-100}
SEED=${STRESS_SEED:-$SRANDOM}
HISTORY=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/history
[ -x "$HISTORY" ] || skip_all "no program history: make check builds it, or set STRESS_PROGRAMS"

# history OPTION…: its status; what it prints is shown.
history() {
    local status=0
    "$HISTORY" --clients "$CLIENTS" --operations "$OPERATIONS" --names "$NAMES" --seed "$SEED" \
        --kill-every "${STRESS_KILL_EVERY:-1500}" --stop-every "${STRESS_STOP_EVERY:-100}" "$@" \
        >"$TEST_DIR/history" 2>&1 || status=$?
    sed 's/^/# /' "$TEST_DIR/history" | head -200
    return "$status"
}

it "the judge of histories tells faulty ones from good ones"
expect "$HISTORY" --self-test >"$TEST_DIR/self" || sed 's/^/# /' "$TEST_DIR/self"
sed 's/^/# /' "$TEST_DIR/self"

# Elsewhere each kind of lock has names of its own.
mkdir "$TEST_DIR/plain"
it "a history of locks on an ordinary filesystem is found faultless"
expect history "$TEST_DIR/plain"

it "the same history without the calls that lock is found faulty"
rm -rf "$TEST_DIR/plain" && mkdir "$TEST_DIR/plain"
history --clients 32 --names 12 --unfenced "$TEST_DIR/plain" | tail -4
expect_is "${PIPESTATUS[0]}" 3 status
expect grep -q '^overlap:' "$TEST_DIR/history"

mount_local "$TEST_DIR/store" ttl=1
it "a history of leases, flocks and fcntl locks with processes stopped and killed is faultless, and leaves nothing behind"
expect history --ttl 1000 --daemon "$DAEMON" "$MNT"
expect grep -q '[1-9][0-9]* kills, [1-9][0-9]* stops' "$TEST_DIR/history"

finish
