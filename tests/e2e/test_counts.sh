#!/bin/bash
# What an operation costs, counted instead of timed: the kernel's requests, the daemon's system calls, allocations and
# readings of the clock, and a Redis server's requests and commands.  The bounds are the table in counts.py.  With
# spin=0 and follow=no, because how often a daemon polls or moves is a matter of time.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] || skip_all "/dev/shm is no tmpfs"
LEASEFS=${COUNTED_LEASEFS:-${top_builddir:-.}/tests/e2e/counted}
[ -x "$LEASEFS" ] || skip_all "no program counted: make check builds it, or set COUNTED_LEASEFS"
JOURNAL=$(mktemp -d /dev/shm/leasefs.XXXXXX)
TRACING=$TEST_DIR/tracing
export G_SLICE=always-malloc # as GLib does by itself from 2.76 on, so that allocations are the same everywhere
trap 'status=$?; rm -rf "$JOURNAL"; (exit "$status"); on_exit' EXIT
mkdir "$TRACING" && mount -t tracefs none "$TRACING" 2>/dev/null && [ -r "$TRACING/events/raw_syscalls/sys_enter/id" ] || TRACING=

counts() { # BACKEND OPTIONS STORE WHO
    it "no operation costs more than the table says: $3, $4"
    export COUNTED="$TEST_DIR/counted.$3.$4"
    truncate -s 4096 "$COUNTED"
    mount_backend "$1" "spin=0,follow=no${2:+,$2}"
    expect timeout -s KILL 100 "$PYTHON" "$E2E_DIR/counts.py" "$MNT" "$COUNTED" "$DAEMON" "$TRACING" "$3" "$4" >"$TEST_DIR/counts"
    sed 's/^/# /' "$TEST_DIR/counts"
}

counts memory "" memory private
counts memory allow_other memory others
counts "local:$JOURNAL/private" "" local private
counts "local:$JOURNAL/others" allow_other local others
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
    # shellcheck source=redis.sh
    . "$E2E_DIR/redis.sh"
    redis_start
    export REDIS_SOCKET
    counts "$REDIS_UNIX_URI" "" redis private

    name="no lock costs a Redis server more instructions than is written here"
    if command -v valgrind >/dev/null; then
        it "$name"
        # shellcheck disable=SC2034 # of redis.sh
        redis_within=(valgrind -q --tool=callgrind --callgrind-out-file=/dev/null)
        redis_start --hz 1
        mount_backend "$REDIS_UNIX_URI" "timeout=20s,command_timeout=10s"
        expect timeout -s KILL 100 "$PYTHON" "$E2E_DIR/instructions.py" "$MNT" "$REDIS_SOCKET" "$REDIS_PID" 6 \
            >"$TEST_DIR/instructions"
        sed 's/^/# /' "$TEST_DIR/instructions"
    else
        skip "$name" "no valgrind"
    fi
fi
finish
