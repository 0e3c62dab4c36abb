# shellcheck shell=bash
# redis.sh: Redis servers for the tests on real mounts, and two mounts of one.  Sourced after lib.sh:
#
#     redis_start
#     mount_two ttl=2            # MOUNT_A and MOUNT_B; MNT is MOUNT_A
#     actor A; on "$MOUNT_B" actor B
#
# It promises: a server has a port of its own on 127.0.0.1, a Unix socket and a directory of its own, is used only once
# it answers, and ends with the test, however that ends.  No server that this test has not started is ever spoken to.
#
# redis_start makes a new server and turns to it: the other functions mean that one, until redis_use turns to another.
# Its number is in REDIS, and what is known of it in:
#   REDIS_PORT  REDIS_SOCKET  REDIS_DIR  REDIS_PID  REDIS_URI  REDIS_UNIX_URI
#
# redis_within is a prefix of the server's command that executes it (nsenter), for where it is to run.

REDIS=
declare -a redis_within=()
declare -a redis_ports=() redis_pids=() redis_arguments=()
MOUNT_B=
PROXY_PORT=

command -v redis-server >/dev/null || skip_all "no redis-server"
command -v redis-cli >/dev/null || skip_all "no redis-cli (package redis-tools)"

redis_use() { # NUMBER
    REDIS=$1
    REDIS_PORT=${redis_ports[REDIS]}
    REDIS_PID=${redis_pids[REDIS]:-}
    REDIS_DIR=$TEST_DIR/redis.$REDIS
    REDIS_SOCKET=$REDIS_DIR/socket
    # shellcheck disable=SC2034 # for the tests
    REDIS_URI=redis://127.0.0.1:$REDIS_PORT REDIS_UNIX_URI=redis+unix://$REDIS_SOCKET
}

# redis_start [ARGUMENT…]: a new server; arguments of redis-server are kept for when it is started again.
redis_start() {
    local tries
    REDIS=${#redis_ports[@]}
    mkdir "$TEST_DIR/redis.$REDIS"
    redis_arguments[REDIS]=${*@Q}
    for tries in {1..20}; do
        redis_ports[REDIS]=$((20000 + SRANDOM % 12000)) # below those that the kernel gives to clients
        redis_launch && return
        grep -q 'Could not create server TCP listening socket' "$REDIS_DIR/log" || break
    done
    say "redis-server $* did not come up after $tries tries:"
    sed 's/^/# /' "$REDIS_DIR/log"
    exit 1
}

redis_launch() {
    local -a arguments
    eval "arguments=(${redis_arguments[REDIS]})"
    redis_use "$REDIS"
    : >"$REDIS_DIR/log"
    # not in a subshell: a server ends with the thread that started it
    setpriv --pdeathsig KILL "${redis_within[@]}" redis-server --bind 127.0.0.1 --port "$REDIS_PORT" \
        --unixsocket "$REDIS_SOCKET" --unixsocketperm 700 --dir "$REDIS_DIR" --logfile "$REDIS_DIR/log" --daemonize no \
        --save '' "${arguments[@]}" \
        </dev/null >/dev/null 2>&1 &
    REDIS_PID=$!
    redis_pids[REDIS]=$REDIS_PID
    started+=("$REDIS_PID")
    eventually 20 redis_up_or_ended && ! gone "$REDIS_PID"
}

redis_up_or_ended() { gone "$REDIS_PID" || redis_up; }
# It answers, even if only that it wants a password.
redis_up() { [[ $(redis_cli PING 2>&1) == @(PONG|NOAUTH*|NOPERM*) ]]; }

# redis_cli ARGUMENT…: as redis-cli; REDISCLI_AUTH is the password.
redis_cli() { timeout 20 redis-cli -s "$REDIS_SOCKET" "$@"; }

# As an administrator stops it: what it keeps on disk is kept.
redis_stop() {
    kill -TERM "$REDIS_PID"
    eventually 20 gone "$REDIS_PID" || end_process "$REDIS_PID"
}
redis_kill() { end_process "$REDIS_PID"; }

# The same one again, with its port, its arguments and what it has on disk.
redis_again() {
    redis_launch && return
    fail "redis-server did not come up again:"
    sed 's/^/# /' "$REDIS_DIR/log"
}
redis_restart() {
    redis_stop
    redis_again
}

redis_pause() { # the kernel goes on to accept connections and bytes for it
    kill -STOP "$REDIS_PID"
    eventually 5 redis_stopped
}
redis_stopped() { [[ $(cat "/proc/$REDIS_PID/stat") =~ ^[0-9]+\ .*\)\ T ]]; }
redis_resume() { kill -CONT "$REDIS_PID"; }

# redis_key NAME: whether there is such a key.
redis_key() { [ "$(redis_cli EXISTS "$1")" = 1 ]; }

# mount_redis [OPTIONS]: a mount of the server; MNT, DAEMON, LOG.
mount_redis() { mount_backend "$REDIS_URI" "${1:-}"; }

mount_two() { mount_both "$REDIS_URI" "${1:-}"; } # [OPTIONS]

# proxy_start SEED: a proxy before the server, on PROXY_PORT; PROXY_URI.  proxy COMMAND: see tests/proxy.py.
proxy_start() {
    partner proxy "$PYTHON" -S -E "$E2E_DIR/../proxy.py" --ids --seed "$1" --to "127.0.0.1:$REDIS_PORT"
    PROXY_PORT=$(ask proxy port)
    # shellcheck disable=SC2034
    PROXY_URI=redis://127.0.0.1:$PROXY_PORT
    [[ $PROXY_PORT =~ ^[0-9]+$ ]] || { say "the proxy did not start: $PROXY_PORT"; exit 1; }
}
proxy() {
    local answer
    answer=$(ask proxy "$*")
    [ "$answer" = ok ] || fail "proxy: $*: $answer"
}
