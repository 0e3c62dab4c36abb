# shellcheck shell=bash
# kills.sh: a daemon that is killed at random moments while its locks are used, on any store.  Sourced after lib.sh; see
# test_kills.sh.
#
#     kills "local:$TEST_DIR/store" 1000 --kills 20
#
# A run that fails shows which lines the log has most often; one that stops before its judgement also the last lines.
# KILLS_OPTIONS are options of the mount.

KINDS=${E2E_KILL_KINDS:-lease,rename,link,flock,range,ofd,ticket,inherited}
KILLS_PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/kills
[ -x "$KILLS_PROGRAM" ] || skip_all "no program kills: make check builds it, or set STRESS_PROGRAMS"
sees_all || skip_all "needs CAP_SYS_PTRACE"

# Mounts in it are passed on to the namespaces of the workers.
top=$TEST_DIR/top
mkdir "$top"
mount -t tmpfs -o mode=755 tmpfs "$top" && mount --make-shared "$top" || skip_all "no shared mount"
mkdir "$top/mnt"
mkdir -m 700 "$TEST_DIR/store"

kills_log() { grep -v sandbox "$TEST_DIR/kills.log"; }

# kills BACKEND MS [OPTION…]: with this ttl; its status; what it prints is shown.
kills() {
    local status=0 backend=$1 ttl=$2 limit=$((${E2E_LIMIT:-240} - 10)) # lib.sh ends the test at E2E_LIMIT
    shift 2
    timeout -s KILL "$limit" "$KILLS_PROGRAM" --seed "${STRESS_SEED:-$SRANDOM}" --ttl "$ttl" "$@" "$top/mnt" \
        "$LEASEFS" -f -o "ttl=${ttl}ms,allow_other${KILLS_OPTIONS:+,$KILLS_OPTIONS}" "$backend" "$top/mnt" >"$TEST_DIR/kills" 2>"$TEST_DIR/kills.log" || status=$?
    sed 's/^/# /' "$TEST_DIR/kills" | tail -60
    [ "$status" = 0 ] || kills_log | sort | uniq -c | sort -rn | head -20 | sed 's/^/# /'
    if [ "$status" != 0 ] && [ "$status" != 3 ]; then
        [ "$status" != 137 ] || say "killed after $limit s: see E2E_LIMIT"
        say "status $status, without a judgement; the end of the log:"
        kills_log | tail -20 | sed 's/^/# /'
    fi
    while mountpoint -q "$top/mnt"; do umount -l "$top/mnt"; done
    return "$status"
}
