#!/bin/bash
# Random lock programs, with processes that fork, share open files, wait, are interrupted and killed, get on a mount the
# answers that they get on tmpfs: the kernel's own locks are the oracle.  What the contract wants otherwise is listed in
# tests/oracle/oracle.h.
#
# The full size is
#
#     ORACLE_PROGRAMS=100000 ORACLE_SECONDS=3000 E2E_LIMIT=9000 tests/e2e/test_oracle.sh
#
# Environment: ORACLE_PROGRAMS (2000: three fifths on one mount, the others on mounts of Redis), ORACLE_SECONDS (25: of each
# of the three runs at most); ORACLE_SEED; ORACLE, the program (default: that of the build directory).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

PROGRAMS=${ORACLE_PROGRAMS:-2000}
SEED=${ORACLE_SEED:-$SRANDOM}
ORACLE=${ORACLE:-${top_builddir:-.}/tests/oracle/oracle}
[ -x "$ORACLE" ] || skip_all "no program oracle: make check builds it, or set ORACLE"
[ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] || skip_all "no tmpfs to ask: /dev/shm is none"
TMPFS=$(mktemp -d /dev/shm/leasefs.XXXXXX)
trap 'status=$?; rm -rf "$TMPFS"; (exit "$status"); on_exit' EXIT

# oracle PROGRAMS [OPTION…] MOUNT…: its status; what it prints is shown.
oracle() {
    local programs=$1 status=0
    shift
    timeout -s KILL 8000 "$ORACLE" --programs "$programs" --seed "$SEED" --seconds "${ORACLE_SECONDS:-25}" "$@" \
        >"$TEST_DIR/oracle" 2>&1 || status=$?
    sed 's/^/# /' "$TEST_DIR/oracle"
    return "$status"
}

it "two mounts that share no store are told from tmpfs, and the program that tells them is made small"
mount_backend memory
ONE=$MNT
mount_backend memory
oracle 200 "$TMPFS" "$ONE" "$MNT"
expect_is $? 3 status
expect grep -q '^DIFFERENT: seed' "$TEST_DIR/oracle"
unmount "$MNT"

it "random lock programs get the same answers on tmpfs and on a mount"
expect oracle $((PROGRAMS * 3 / 5)) "$TMPFS" "$ONE"
expect grep -q '[1-9][0-9]* waits, [1-9][0-9]* went on' "$TEST_DIR/oracle"

redis_start
mount_two
it "random lock programs get the same answers on tmpfs and on a mount of Redis"
expect oracle $((PROGRAMS / 5)) --remote "$TMPFS" "$MOUNT_A"

it "random lock programs whose processes are spread over two hosts get the same answers as on tmpfs"
expect oracle $((PROGRAMS / 5)) --remote "$TMPFS" "$MOUNT_A" "$MOUNT_B"

finish
