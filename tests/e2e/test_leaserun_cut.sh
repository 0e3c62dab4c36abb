#!/bin/bash
# leaserun under a cut of the backend: all that its command has started is dead before its lock is granted through
# another mount.
#
# LEASERUN_CUTS is how many runs there are (default 40), CUTS_AT_ONCE of them at a time (default 20), by turns with
# leases of one second and two, and with a network that swallows everything and one that resets and refuses.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun}
CUT=${top_builddir:-.}/tests/stress/leaserun_cut
[ -x "$LEASERUN" ] || skip_all "no leaserun beside $LEASEFS: set LEASERUN"
[ -x "$CUT" ] || skip_all "no $CUT: make it first"

redis_start
proxy_start 1
mount_redis && MOUNT_B=$MNT
mount_backend "$PROXY_URI" && MOUNT_A=$MNT

cut_off() { # HOW
    case $1 in
    swallowed) proxy pause ;;
    refused)
        proxy refuse on
        proxy drop
        ;;
    esac
}
connect() {
    proxy resume
    proxy refuse off
}
answers_a() { timeout 10 "$LEASERUN" -n "$MOUNT_A/probe" -- true 2>/dev/null; }
is_ready() { grep -q ready "$TEST_DIR/cut.out" || gone "$STARTED"; }

runs=${LEASERUN_CUTS:-40}
at_once=${CUTS_AT_ONCE:-20}
batch=0
while [ "$runs" -gt 0 ]; do
    count=$((runs < at_once ? runs : at_once))
    ttl=$((batch % 2 ? 2000 : 1000))
    how=$([ $((batch / 2 % 2)) = $((batch % 2)) ] && echo swallowed || echo refused)
    it "batch $((batch + 1)), $count runs with leases of $ttl ms, cut off by being $how: the commands are dead before the grant"
    expect eventually 30 answers_a
    rm -f "$TEST_DIR/stamps"
    : >"$TEST_DIR/cut.out"
    start "$CUT" "$LEASERUN" "$MOUNT_A" "$MOUNT_B" "$count" "$ttl" "$TEST_DIR/stamps" >"$TEST_DIR/cut.out" 2>"$TEST_DIR/cut.err"
    expect eventually 60 is_ready
    cut_off "$how"
    status=0
    wait "$STARTED" || status=$?
    say "$(grep -v ready "$TEST_DIR/cut.out")"
    [ "$status" = 0 ] || sed 's/^/# /' "$TEST_DIR/cut.err"
    expect_is "$status" 0 "status of leaserun_cut"
    connect
    runs=$((runs - count))
    batch=$((batch + 1))
done

finish
