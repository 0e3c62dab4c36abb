# shellcheck shell=bash
# takeover.sh: a mount whose daemon is replaced again and again.  Sourced after lib.sh and leaserun.sh; E2E_STORE is the
# kind of its store (default: local).
#
#     takeover_mount ttl=200    # `point` with an actor A, which has the lease `kept` and, by `f`, the lock `flock`
#     takeover [OPTIONS]        # DAEMON is the next one

case ${E2E_STORE:-local} in
redis)
    # shellcheck source=redis.sh
    . "$E2E_DIR/redis.sh"
    redis_start
    store=$REDIS_URI
    ;;
postgresql)
    # shellcheck source=postgresql.sh
    . "$E2E_DIR/postgresql.sh"
    postgresql_start
    store=$POSTGRESQL_URI
    ;;
zookeeper)
    # shellcheck source=zookeeper.sh
    . "$E2E_DIR/zookeeper.sh"
    zookeeper_start
    zookeeper_root takeover
    store=$ZOOKEEPER_URI
    ;;
redlock)
    # shellcheck source=redis.sh
    . "$E2E_DIR/redis.sh"
    for _ in 1 2 3; do redis_start; done
    store=redlock://127.0.0.1:${redis_ports[0]},127.0.0.1:${redis_ports[1]},127.0.0.1:${redis_ports[2]}
    ;;
*)
    mkdir -m 700 "$TEST_DIR/store"
    store=local:$TEST_DIR/store
    ;;
esac

takeover_mount() { # OPTIONS
    OPTIONS=$1
    [ "${E2E_STORE:-}" != redlock ] || OPTIONS=$OPTIONS,grace=1s
    [ "${E2E_STORE:-}" != zookeeper ] || OPTIONS=$OPTIONS,state=$TEST_DIR/state
    mount_backend "$store" "$OPTIONS"
    point=$MNT
    chmod 755 "$TEST_DIR"
    actor A
    expect eventually 10 answers A 'acquire("kept")' ok # new servers of redlock have a grace period
    says A 'f = op("flock", "RDWR|CREAT"); flock(f, "EX")' ok
    kept=$(attribute kept token)
    # shellcheck disable=SC2034 # for the tests
    flocked=$(attribute flock token)
}

# A service manager: notes in a file what is sent to a socket, a line each.  Its arguments are the socket and the file.
# shellcheck disable=SC2034 # for the tests
NOTIFIED='import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
with open(sys.argv[2], "ab", 0) as out:
    while True:
        out.write(s.recv(4096) + b"\n")'

daemon_of() { sed -n 's/^pid: //p' "$point/.leasefs/status"; }

# The next daemon, in the foreground; the old one must end by itself.
takeovers=0
takeover() { # [OPTIONS]
    local old=$DAEMON
    mount_index "$point"
    takeovers=$((takeovers + 1))
    "$LEASEFS" -f -o "takeover,${1:-$OPTIONS}" "$store" "$point" >"$LOG.$takeovers" 2>&1 &
    takeover_ends "$old" $!
}
takeover_ends() { # OLD NEW
    DAEMON=$2
    started+=("$DAEMON")
    expect eventually 20 gone "$1"
    { wait "$1" || fail "the old daemon ended with status $?"; } 2>/dev/null
    expect eventually 20 [ "$(daemon_of)" = "$DAEMON" ]
    mount_daemons[INDEX]=$DAEMON
    mount_devices[INDEX]=$(device_of "$point")
}

# The daemon is the one that it was, and so are the locks and the files that were open.
nothing_has_changed() {
    expect_is "$(daemon_of)" "$DAEMON"
    expect_is "$(attribute kept token)" "$kept"
    says A 'flock(f, "EX|NB"); write(f, "x")' ok
}

# Linux 6.5: else dead mounts stay below.
sees_beneath() { [ "$(printf "6.5\n%s\n" "$(uname -r)" | sort -V | head -1)" = 6.5 ]; }
layers() { grep -c " $point " /proc/self/mountinfo; }
resumed_now() { attribute "$1" owner | grep -qv 'daemon restarted'; }

# Processes that call by path: no call may fail.
load_start() { # PAUSE
    rm -f "$TEST_DIR/stop"
    : >"$TEST_DIR/load"
    for i in 1 2 3; do
        start "$PYTHON" "$E2E_DIR/takeover_load.py" "$MNT" "$TEST_DIR/stop" "$i" "$1" >>"$TEST_DIR/load"
        workers[i]=$STARTED
    done
}
load_stop() {
    : >"$TEST_DIR/stop"
    for i in 1 2 3; do expect eventually 30 gone "${workers[i]}"; done
    expect_is "$(grep failed "$TEST_DIR/load")" ""
    say "calls by path, the longest in ms, flocks: $(tr '\n' ';' <"$TEST_DIR/load")"
    expect_is "$(grep -c '^[0-9]' "$TEST_DIR/load")" 3
}
