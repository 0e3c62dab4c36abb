#!/bin/bash
# Many processes take leases, flocks, fcntl locks and places in queues at random, over the same names, while they are
# stopped, continued and killed: no two that exclude each other ever hold together, no queue has more holders than its
# width, no fencing token goes back, nothing is left behind.
#
# The full size is
#
#     STRESS_CLIENTS=64 STRESS_OPERATIONS=10000 E2E_LIMIT=3000 tests/e2e/test_history.sh
#
# Environment: STRESS_CLIENTS, processes (32); STRESS_OPERATIONS, of each (2000); STRESS_NAMES (100); STRESS_KILL_EVERY
# and STRESS_STOP_EVERY, milliseconds on average for one process (600, 100); STRESS_SEED; STRESS_PROGRAMS, the directory
# of the programs (default: tests/stress of the build directory).

# What the sanitizer keeps of freed memory is not the daemon's.
export ASAN_OPTIONS="quarantine_size_mb=4${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

CLIENTS=${STRESS_CLIENTS:-32}
OPERATIONS=${STRESS_OPERATIONS:-2000}
NAMES=${STRESS_NAMES:-100}
SEED=${STRESS_SEED:-$SRANDOM}
PROGRAMS=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}
HISTORY=$PROGRAMS/history
[ -x "$HISTORY" ] || skip_all "no program history: make check builds it, or set STRESS_PROGRAMS"

# history OPTION…: its status; what it prints is shown.
history() {
    local status=0
    "$HISTORY" --clients "$CLIENTS" --operations "$OPERATIONS" --names "$NAMES" --seed "$SEED" \
        --kill-every "${STRESS_KILL_EVERY:-600}" --stop-every "${STRESS_STOP_EVERY:-100}" "$@" \
        >"$TEST_DIR/history" 2>&1 || status=$?
    sed 's/^/# /' "$TEST_DIR/history" | head -200
    return "$status"
}

it "the judge of histories tells faulty ones from good ones"
"$HISTORY" --self-test | sed 's/^/# /'
expect_is "${PIPESTATUS[0]}" 0 status

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
it "a history of leases, flocks, fcntl locks and queues with processes stopped and killed is faultless, and leaves nothing behind"
expect history --ttl 1000 --daemon "$DAEMON" "$MNT"
expect grep -q '[1-9][0-9]* kills, [1-9][0-9]* stops' "$TEST_DIR/history"
expect grep -q ' [1-9][0-9]* at the full width of a queue' "$TEST_DIR/history"

# Faults that histories have shown before, one by one.
actor A
actor B

it "a lease is not renamed while others have its name open: they would lock the name that it has then"
says A 'acquire("old")' ok
says B 'b = op("old", "RDONLY")' ok
says A 'mv("old", "new")' EBUSY
says B 'flock(b, "EX|NB")' EAGAIN
says B 'close(b)' ok
expect eventually 2 answers A 'mv("old", "new")' ok
expect absent old
says B 'b = op("old", "RDONLY|CREAT"); flock(b, "EX|NB")' ok
expect exists new
says A 'rm("new")' ok
says B 'rm("old"); close(b)' ok

it "a name whose lease was renamed to another, and gone from there, is seen when it is locked by a handle of before"
says B 'b = op("target", "RDONLY|CREAT")' ok
says A 'acquire("temporary"); mv("temporary", "target"); rm("target")' ok
expect absent target
says B 'flock(b, "EX|NB")' ok
expect exists target
says B 'close(b)' ok
expect eventually 2 absent target

it "each of two shared holders removes its own lock, whatever has had the name since they opened it"
says B 'b = op("both", "RDONLY|CREAT")' ok
says A 'ln("nobody", "both"); rm("both")' ok
says A 'a = op("both", "RDONLY|CREAT")' ok
says B 'flock(b, "SH|NB")' ok
says A 'flock(a, "SH|NB")' ok
says A 'rm("both")' ok
expect exists both
says B 'rm("both")' ok
expect absent both
says A 'close(a)' ok
says B 'close(b)' ok

it "who closes a file with success just when its provisional second ends holds the lease"
"$PROGRAMS/lapse" "$MNT" | sed 's/^/# /'
expect_is "${PIPESTATUS[0]}" 0 status

finish
