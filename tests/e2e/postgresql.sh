# shellcheck shell=bash
# postgresql.sh: a PostgreSQL server for the tests on real mounts, and two mounts of it.  Sourced after lib.sh:
#
#     postgresql_start
#     mount_two ttl=10           # MOUNT_A and MOUNT_B; MNT is MOUNT_A
#
# The server is this test's own, on a port of 127.0.0.1 and in a directory of its own, runs as another user than root, and
# ends with the test.  It sets POSTGRESQL_PORT POSTGRESQL_PID POSTGRESQL_URI POSTGRESQL_SOCKETS POSTGRESQL_DATA.

postgresql_programs=$(find /usr/lib/postgresql/*/bin -maxdepth 0 2>/dev/null | sort -V | tail -1)
[ -x "${postgresql_programs:-}/postgres" ] || skip_all "no PostgreSQL server (package postgresql)"
declare -a postgresql_user=() # the command that runs another as its user; not a function, so that what is started is the server
[ "$(id -u)" != 0 ] || postgresql_user=(setpriv --reuid nobody --regid nogroup --clear-groups)

postgresql_up_or_ended() {
    gone "$POSTGRESQL_PID" || "$postgresql_programs/pg_isready" -q -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT"
}

declare -a postgresql_env=() # env with the variables of the server

# postgresql_launch [ARGUMENT…]: the one that was started before, with its port and what it has on disk, or the first.
postgresql_launch() {
    # the signal of its parent's death is undone when it changes its user, so it is set behind that
    "${postgresql_user[@]}" setpriv --pdeathsig QUIT "${postgresql_env[@]}" "$postgresql_programs/postgres" -D "$POSTGRESQL_DATA" \
        -c "unix_socket_directories=$POSTGRESQL_SOCKETS" -c listen_addresses=127.0.0.1 -c "port=$POSTGRESQL_PORT" \
        -c shared_buffers=16MB -c max_connections=100 "$@" </dev/null >>"$TEST_DIR/postgresql.log" 2>&1 &
    POSTGRESQL_PID=$!
    started+=("$POSTGRESQL_PID")
    eventually 60 postgresql_up_or_ended && ! gone "$POSTGRESQL_PID"
}

# postgresql_start [ARGUMENT…]
postgresql_start() {
    local tries
    POSTGRESQL_SOCKETS=$TEST_DIR/pg
    POSTGRESQL_DATA=$POSTGRESQL_SOCKETS/data
    mkdir -p "$POSTGRESQL_SOCKETS"
    chmod go+x "$TEST_DIR" # its user passes
    if [ "$(id -u)" = 0 ]; then chown nobody:nogroup "$POSTGRESQL_SOCKETS"; fi
    "${postgresql_user[@]}" "$postgresql_programs/initdb" -D "$POSTGRESQL_DATA" -A trust -U postgres -E UTF8 --locale=C --no-sync \
        >"$TEST_DIR/initdb.log" 2>&1 || { sed 's/^/# /' "$TEST_DIR/initdb.log"; exit 1; }
    for tries in {1..20}; do
        POSTGRESQL_PORT=$((20000 + SRANDOM % 12000)) # below those that the kernel gives to clients
        POSTGRESQL_URI=postgresql://postgres@127.0.0.1:$POSTGRESQL_PORT/postgres
        postgresql_launch "$@" && return
    done
    say "the PostgreSQL server did not come up after $tries tries:"
    sed 's/^/# /' "$TEST_DIR/postgresql.log"
    exit 1
}

# standby_start [ARGUMENT…]: a standby that follows the server, on another port: STANDBY_PID, STANDBY_PORT.
standby_start() {
    STANDBY_DATA=$(mktemp -d "$POSTGRESQL_SOCKETS/standby.XXXXXX") STANDBY_PORT=$((POSTGRESQL_PORT + 1))
    [ "$(id -u)" != 0 ] || chown nobody:nogroup "$STANDBY_DATA"
    "${postgresql_user[@]}" "$postgresql_programs/pg_basebackup" -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres -c fast -R \
        -D "$STANDBY_DATA" >>"$TEST_DIR/standby.log" 2>&1 || return
    "${postgresql_user[@]}" setpriv --pdeathsig QUIT "$postgresql_programs/postgres" -D "$STANDBY_DATA" -c "port=$STANDBY_PORT" \
        -c "unix_socket_directories=$POSTGRESQL_SOCKETS" -c listen_addresses=127.0.0.1 -c shared_buffers=16MB "$@" \
        </dev/null >>"$TEST_DIR/standby.log" 2>&1 &
    STANDBY_PID=$!
    started+=("$STANDBY_PID")
    eventually 60 standby_follows
}
standby_follows() { [ "$(sql "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")" = 1 ]; }
standby_is_synchronous() { [ "$(sql "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")" = 1 ]; }

# standby_detach: it gets nothing further of the server's log.
standby_detach() {
    echo "primary_conninfo = ''" >>"$STANDBY_DATA/postgresql.auto.conf"
    kill -HUP "$STANDBY_PID"
    eventually 30 standby_is_detached
}
standby_is_detached() { [ "$(sql "SELECT count(*) FROM pg_stat_replication")" = 0 ]; }

# standby_promote [ARGUMENT…]: it takes the port of the server, which has ended, and is promoted.
standby_promote() {
    kill -INT "$STANDBY_PID"
    wait "$STANDBY_PID" # its number may be another's soon
    rm -rf "$POSTGRESQL_DATA"
    POSTGRESQL_DATA=$STANDBY_DATA
    sed -i /synchronous_standby_names/d "$POSTGRESQL_DATA/postgresql.auto.conf" # there is no other now
    until postgresql_launch "$@"; do pause 0.1; done
    sql "SELECT pg_promote()" >/dev/null
}

# sql STATEMENT…: each a transaction of its own; what they answer.
sql() {
    local arguments=() statement
    for statement; do arguments+=(-c "$statement"); done
    psql -XqtA -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U "${SQL_USER:-postgres}" postgres "${arguments[@]}" 2>&1
}

mount_two() { mount_both "$POSTGRESQL_URI" "${1:-}"; } # [OPTIONS]
