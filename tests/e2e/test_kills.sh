#!/bin/bash
# A lock outlives its daemon: the daemon is killed (-9) at random moments and started again as the shipped unit does it,
# while processes of two users, in two mount namespaces, take leases, flocks, byte ranges, open file description locks
# and tickets, and leave descriptors to their children.  No two hold what excludes each other, an unfenced counter loses
# nothing, and nothing is left when nobody has a file open.
#
# The full size is
#
#     E2E_KILLS=500 E2E_LIMIT=3000 tests/e2e/test_kills.sh
#
# Environment: E2E_KILLS (20); E2E_KILL_KINDS, what the processes take (lease,flock,range,ofd,ticket,inherited);
# STRESS_SEED; STRESS_PROGRAMS, the directory of the programs (default: tests/stress of the build directory).
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

KILLS_PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/kills
[ -x "$KILLS_PROGRAM" ] || skip_all "no program kills: make check builds it, or set STRESS_PROGRAMS"
sees_all || skip_all "needs CAP_SYS_PTRACE"

# Mounts in it are passed on to the namespaces of the workers.
top=$TEST_DIR/top
mkdir "$top"
mount -t tmpfs -o mode=755 tmpfs "$top" && mount --make-shared "$top" || skip_all "no shared mount"
mkdir "$top/mnt"
mkdir -m 700 "$TEST_DIR/store"

# kills BACKEND OPTION…: its status; what it prints is shown.
kills() {
    local status=0 backend=$1
    shift
    timeout -s KILL "${E2E_LIMIT:-240}" "$KILLS_PROGRAM" --seed "${STRESS_SEED:-$SRANDOM}" --ttl 1000 "$@" "$top/mnt" \
        "$LEASEFS" -f -o ttl=1s,allow_other "$backend" "$top/mnt" >"$TEST_DIR/kills" 2>"$TEST_DIR/kills.log" || status=$?
    sed 's/^/# /' "$TEST_DIR/kills" | tail -60
    [ "$status" = 0 ] || grep -v sandbox "$TEST_DIR/kills.log" | sort | uniq -c | sort -rn | head -20 | sed 's/^/# /'
    while mountpoint -q "$top/mnt"; do umount -l "$top/mnt"; done
    return "$status"
}

it "a store that ends with its daemon is found faulty"
kills memory --kills 5
expect_is $? 3 status
expect grep -q '^overlap:' "$TEST_DIR/kills"

it "no lock ends with its daemon on a local store"
expect kills "local:$TEST_DIR/store" --kills "${E2E_KILLS:-20}" \
    --kinds "${E2E_KILL_KINDS:-lease,flock,range,ofd,ticket,inherited}"

finish
