#!/bin/bash
# leaserun when something goes wrong: all that its command has started is dead before its lock is granted through
# another mount.
#
# The faults: the network is cut (it swallows everything, or resets and refuses), the daemon hangs, leaserun is
# stopped while the daemon hangs, leaserun is killed, the lock is broken; each with few processes and with many, as root
# and as an ordinary user, with a control group and without.
#
# LEASERUN_CUTS is how many runs of each there are (default 4), CUTS_AT_ONCE (default 2) or WIDE_AT_ONCE (1) of them at a
# time, LOAD how many processes keep the machine busy meanwhile (default 0), TTL the ttl in milliseconds, by turns with its
# double (default 1000), and CUTS which of them (a pattern; default all).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun}
CUT=${top_builddir:-.}/tests/stress/leaserun_cut
[ -x "$LEASERUN" ] || skip_all "no leaserun beside $LEASEFS: set LEASERUN"
[ -x "$CUT" ] || skip_all "no $CUT: make it first"
install -m 755 "$LEASERUN" "$TEST_DIR/leaserun" # others cannot run what is in every checkout
install -m 755 "$CUT" "$TEST_DIR/leaserun_cut"
LEASERUN=$TEST_DIR/leaserun CUT=$TEST_DIR/leaserun_cut

redis_start
proxy_start 1
mount_redis allow_other && MOUNT_B=$MNT
mount_backend "$PROXY_URI" allow_other && MOUNT_A=$MNT DAEMON_A=$DAEMON

# --- with and without a control group ---

CGROUPS=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
DELEGATED=
if [ -n "$CGROUPS" ] && mkdir "$CGROUPS/leaserun-test.$$" 2>/dev/null; then
    DELEGATED=$CGROUPS/leaserun-test.$$
    trap 'rmdir "$DELEGATED" 2>/dev/null; on_exit' EXIT
    if [ -e "$DELEGATED/cgroup.kill" ]; then chown -R 12345 "$DELEGATED"; else rmdir "$DELEGATED" && DELEGATED=; fi
fi
delegated() { sh -c 'echo $$ | tee "$0/cgroup.procs" >"$1" && shift && exec "$@"' "$DELEGATED" "$TEST_DIR/delegated" "$@"; }
hidden() { unshare --mount --propagation slave sh -c '[ -z "$0" ] || mount -t tmpfs none "$0" && exec "$@"' "$CGROUPS" "$@"; }
# A process' own group, as leaserun's command sees it.
group_of_command() { "$@" "$LEASERUN" "$MOUNT_A/probe" -- grep ^0:: /proc/self/cgroup; }

if [ -n "$DELEGATED" ]; then
    it "the command is in a control group of its own, which is gone afterwards; where that cannot be made it runs all the same"
    expect_re "$(group_of_command)" '/leaserun\.[0-9]+\.[0-9]+$'
    expect_re "$(group_of_command delegated setpriv --reuid 12345 --clear-groups)" '/leaserun-test\.[0-9]+/leaserun\.[0-9]+\.[0-9]+$'
    expect_re "$(group_of_command setpriv --reuid 12345 --clear-groups)" '^0::'
    expect_is "$(group_of_command hidden)" "$(grep ^0:: /proc/self/cgroup)"
    expect_is "$(find "$DELEGATED" -name 'leaserun.*')" ""

    it "what the command leaves behind goes on in the group that leaserun was in"
    pid=$(delegated "$LEASERUN" "$MOUNT_A/probe" -- sh -c 'sleep 60 >/dev/null 2>&1 & echo $!')
    expect_re "$(grep ^0:: "/proc/$pid/cgroup")" '/leaserun-test\.[0-9]+$'
    expect_is "$(find "$DELEGATED" -name 'leaserun.*')" ""
    kill "$pid"

    it "the group of a leaserun that was killed within it goes with it"
    start delegated "$LEASERUN" "$MOUNT_A/outer" -- "$LEASERUN" "$MOUNT_A/inner" -- sh -c "echo x >'$TEST_DIR/inner'; exec sleep 60"
    expect eventually 10 [ -s "$TEST_DIR/inner" ]
    kill -9 "$(cat "$TEST_DIR/delegated")"
    expect eventually 10 absent outer
    expect eventually 5 absent inner
    expect_is "$(find "$DELEGATED" -name 'leaserun.*')" ""
else
    skip "the command is in a control group of its own" "no cgroup2 with cgroup.kill can be written to"
fi

# --- what goes wrong ---

go_wrong() { # HOW
    case $1 in
    swallowed) proxy pause ;;
    refused)
        proxy refuse on
        proxy drop
        ;;
    hung | stopped) kill -STOP "$DAEMON_A" ;;
    esac
}
mend() {
    kill -CONT "$DAEMON_A"
    proxy resume
    proxy refuse off
}
answers_a() { timeout 10 "$LEASERUN" -n "$MOUNT_A/probe" -- true 2>/dev/null; }
is_ready() { grep -q ready "$TEST_DIR/cut.out" || gone "$STARTED"; }

# batch HOW COUNT TTL PREFIX [OPTION…]
batch() {
    local how=$1 count=$2 ttl=$3 prefix=$4 status=0 report=cut
    shift 4
    case $how in stopped | killed | broken) report=$how ;; esac
    expect eventually 60 answers_a
    rm -f "$TEST_DIR/stamps"
    : >"$TEST_DIR/cut.out"
    # shellcheck disable=SC2086 # words are meant
    start $prefix "$CUT" "$@" "$LEASERUN" "$MOUNT_A" "$MOUNT_B" "$count" "$ttl" "$TEST_DIR/stamps" "$report" \
        >"$TEST_DIR/cut.out" 2>"$TEST_DIR/cut.err"
    expect eventually 120 is_ready
    go_wrong "$how"
    wait "$STARTED" || status=$?
    say "$how${prefix:+, $prefix} $* ttl $ttl: $(grep -v ready "$TEST_DIR/cut.out")"
    [ "$status" = 0 ] || sed 's/^/# /' "$TEST_DIR/cut.err"
    expect_is "$status" 0 "status of leaserun_cut"
    mend
    rm -rf "$MOUNT_B"/cut-*q 2>/dev/null
}

# runs NAME HOW AT-ONCE [OPTION…]: all of them, by turns as root and another user, with a control group and without.
runs() {
    local name=$1 how=$2 at_once=$3 ttl=${TTL:-1000} left=${LEASERUN_CUTS:-4} turn=0 count
    local -a options prefixes=("" hidden)
    [ -z "$DELEGATED" ] || prefixes+=(delegated)
    shift 3
    # shellcheck disable=SC2053 # a pattern is meant
    [[ $name == ${CUTS:-*} ]] || return 0
    it "$name: all that the command has started is dead before the lock is another's, ${LEASERUN_CUTS:-4} times"
    while [ "$left" -gt 0 ]; do
        count=$((left < at_once ? left : at_once))
        options=("$@")
        # root with a group, root without, user with, user without
        case $((turn % 4)) in 2 | 3) options+=(-u 12345) ;; esac
        case $((turn % 4)) in
        0) batch "$how" "$count" "$ttl" "" "${options[@]}" ;;
        2) batch "$how" "$count" $((2 * ttl)) "${DELEGATED:+delegated}" "${options[@]}" ;;
        *) batch "$how" "$count" $((turn % 4 == 1 ? 2 * ttl : ttl)) hidden "${options[@]}" ;;
        esac
        left=$((left - count)) turn=$((turn + 1))
    done
}

for ((i = 0; i < ${LOAD:-0}; i++)); do
    start sh -c 'while :; do :; done'
done

few=${CUTS_AT_ONCE:-2}
runs "network swallows" swallowed "$few"
runs "network refuses" refused "$few"
runs "hung daemon" hung "$few"
runs "stopped leaserun" stopped "$few"
runs "killed leaserun" killed "$few"
runs "broken lock" broken "$few"
runs "wide tree, network cut" swallowed "${WIDE_AT_ONCE:-1}" -w 200
runs "wide tree, stopped leaserun" stopped "${WIDE_AT_ONCE:-1}" -w 200
runs "wide tree, killed leaserun" killed "${WIDE_AT_ONCE:-1}" -w 200
runs "wide tree, broken lock" broken "${WIDE_AT_ONCE:-1}" -w 200
runs "several locks, network cut" swallowed "$few" -k several
runs "several locks, one broken" broken "$few" -k several
runs "queue, network cut" swallowed "$few" -k queue
runs "queue, broken" broken "$few" -k queue

finish
