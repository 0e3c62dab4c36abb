#!/bin/bash
# Mounts of PostgreSQL servers that cannot work are refused in a line that says what to do; what somebody else does to the
# tables, the locks and the server harms no lock of others, and is reported by name.
E2E_LIMIT=${E2E_LIMIT:-600}
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
command -v openssl >/dev/null || skip_all "no openssl"

refused() { # WHY [OPTIONS [URI]]: as a regular expression
    local said status=0
    said=$(timeout -s KILL 60 "$LEASEFS" -f ${2:+-o "$2"} "${3:-$POSTGRESQL_URI}" "$TEST_DIR/refused" 2>&1) || status=$?
    expect_is "$status" 1 "exit status"
    expect_re "$said" "$1" "the error"
    expect_is "$(wc -l <<<"$said")" 1 "lines"
}
connected() { grep -q '^state: connected$' "$MNT/.leasefs/status"; }
uri() { echo "postgresql://$1@127.0.0.1:$POSTGRESQL_PORT/${2:-postgres}${3:-}"; } # USER [DATABASE [QUERY]]

postgresql_start -c fsync=off
mkdir "$TEST_DIR/refused"
sql "CREATE ROLE app LOGIN" "CREATE ROLE guest LOGIN" "CREATE DATABASE other" "REVOKE CREATE ON DATABASE postgres FROM PUBLIC" >/dev/null

it "a URI that cannot be is refused"
refused 'invalid URI query parameter: "colour"' '' "$(uri postgres postgres '?colour=blue')"
refused 'the name of a schema has lower case letters' '' "$(uri postgres postgres '?schema=a;b')"
refused 'the name of a schema has lower case letters' '' "$(uri postgres postgres '?schema=pg_mine')"
refused 'the name of a schema has lower case letters' '' "$(uri postgres postgres '?schema=1a')"
refused 'a password in the URI would be shown to all users.*credentials=FILE' '' "postgresql://postgres:secret@127.0.0.1/postgres"
refused 'invalid sslmode value' '' "$(uri postgres postgres '?sslmode=perhaps')"
refused 'option prefix= is only for redis://' prefix=a:

it "a server, database or role that is not there is named"
refused 'could not translate host name "nosuchhost.invalid"' '' postgresql://nosuchhost.invalid/postgres
refused 'Connection refused.*Start it, or correct the address, or mount with the option background, which waits for the server' '' postgresql://127.0.0.1:1/postgres
refused 'database "none" does not exist' '' "$(uri postgres none)"
refused 'role "nobody_here" does not exist' '' "$(uri nobody_here)"

it "a role that may not make the schema is told what its administrator must run"
refused 'may not make one: run as the database.s owner: leasefs --print-schema=postgresql:leasefs | psql -1 postgres, then GRANT USAGE' '' "$(uri app)"
"$LEASEFS" --print-schema=postgresql | psql -Xq1 -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres
refused 'may not use the schema leasefs: run as its owner: GRANT USAGE ON SCHEMA leasefs TO "app"' '' "$(uri app)"
sql 'GRANT USAGE ON SCHEMA leasefs TO app' 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasefs TO app' >/dev/null
mount_backend "$(uri app)" ttl=10
expect touch "$MNT/by-app"
expect rm "$MNT/by-app"
expect unmount "$MNT"

it "the text of the schema calls no function of another user"
sql 'CREATE FUNCTION public.pg_advisory_xact_lock(integer) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION $x$not mine$x$; END$$' >/dev/null
expect_is "$("$LEASEFS" --print-schema=postgresql | psql -Xq1 -v ON_ERROR_STOP=1 -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres 2>&1)" ''
sql 'DROP FUNCTION public.pg_advisory_xact_lock(integer)' >/dev/null

it "a schema of somebody else, and one of a newer leasefs, are refused"
sql 'CREATE SCHEMA theirs' 'CREATE SCHEMA newer' \
    'CREATE FUNCTION newer.format_version() RETURNS integer LANGUAGE sql AS $$SELECT 99$$' >/dev/null
refused 'the schema theirs of the database postgres is not of leasefs: choose another with \?schema=NAME' '' "$(uri postgres postgres '?schema=theirs')"
refused 'the schema newer has format 99, this leasefs knows format 2' '' "$(uri postgres postgres '?schema=newer')"

it "a schema of an older leasefs is upgraded beside its mounts and keeps locks and rights; if the role may not, the error has the command"
mount_backend "$(uri app)" ttl=10
older=$MNT
expect touch "$older/kept"
sql 'UPDATE leasefs.format SET version = 1' 'DROP FUNCTION leasefs.recover' 'DROP FUNCTION leasefs.sweep' \
    'CREATE FUNCTION leasefs.recover(text, text, bytea, bigint, integer) RETURNS text LANGUAGE sql AS $$SELECT 1$$' >/dev/null
refused 'the schema leasefs was made by an older leasefs, and the role app may not upgrade it: run as the schema.s owner: leasefs --print-schema=postgresql:leasefs | psql -1 postgres' '' "$(uri app)"
mount_backend "$(uri postgres)" ttl=10
expect_is "$(sql 'SELECT leasefs.format_version()')" 2
expect_is "$(sql "SELECT pronargs FROM pg_proc WHERE proname = 'recover' AND proargnames[4] = '_again'")" 5
expect_is "$(sql "SELECT count(*) FROM pg_proc WHERE proname = 'recover'")" 1
expect test -e "$MNT/kept"
expect touch "$older/later"
expect rm "$older/kept" "$older/later"
expect unmount "$MNT"
expect unmount "$older"
mount_backend "$(uri app)" ttl=10
expect touch "$MNT/x"
expect rm "$MNT/x"
expect unmount "$MNT"

it "a schema of an older leasefs of this format gets the new functions beside its mounts, or a mount works without and warns once"
mounts() { attribute . mounts | wc -l; }
schema() { "$LEASEFS" --print-schema=postgresql | psql -Xq1 -v ON_ERROR_STOP=1 -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres 2>&1; }
older_functions=('DROP FUNCTION leasefs.revision' 'DROP FUNCTION leasefs.mounts' 'DROP FUNCTION leasefs.note_mount')
mount_backend "$(uri app)" ttl=10
older=$MNT
expect touch "$older/kept"
sql "${older_functions[@]}" 'ALTER TABLE leasefs.mount DROP version, DROP since' >/dev/null
mount_backend "$(uri app)" ttl=10
expect_is "$(grep -c 'the schema leasefs was made by an older leasefs: locks work, but newer features' "$LOG")" 1
expect test -e "$MNT/kept"
expect touch "$MNT/x"
expect rm "$MNT/x"
expect_is "$(mounts)" 1
expect_not logged "$LOG" 'refuses a request'
expect_is "$(schema)" ''
expect eventually 5 [ "$(sql 'SELECT leasefs.revision()')" = 2 ]
expect test "$(mounts)" -gt 1 # without connecting again
expect unmount "$MNT"
sql "${older_functions[@]}" 'DROP FUNCTION leasefs.sweep' >/dev/null
psql -Xq -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres -c 'SET application_name = dump' -c BEGIN \
    -c 'LOCK leasefs.mount, leasefs.ticket, leasefs.directory, leasefs.format IN ROW EXCLUSIVE MODE' -c 'SELECT pg_sleep(60)' >/dev/null 2>&1 &
dump=$!
started+=("$dump")
dumps() { [ "$(sql "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'dump'")" -gt 4 ]; }
expect eventually 10 dumps
mount_backend "$(uri postgres)" ttl=10
expect_is "$(sql 'SELECT leasefs.revision()')" 2
expect_is "$(sql 'SELECT deleted FROM leasefs.sweep(0)')" 0
expect_not logged "$LOG" 'older leasefs'
end_process "$dump"
sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dump'" >/dev/null
expect unmount "$MNT"
sql 'CREATE OR REPLACE FUNCTION leasefs.revision() RETURNS integer LANGUAGE sql IMMUTABLE AS $$SELECT 99$$' >/dev/null
mount_backend "$(uri postgres)" ttl=10
expect_not logged "$LOG" 'leasefs is of an older'
expect_re "$(schema)" 'the schema was made by a newer leasefs'
expect_is "$(sql 'SELECT leasefs.revision()')" 99
sql 'DROP FUNCTION leasefs.revision' >/dev/null
expect_is "$(schema)" ''
expect rm "$older/kept"
expect unmount "$MNT"
expect unmount "$older"

it "the rows of locks that are free for a minute are deleted as quickly as others come"
sql "INSERT INTO leasefs.ticket (path, slot, place, parent, leaf, freed)
     SELECT convert_to('old' || n, 'UTF8'), 0, 0, '', convert_to('old' || n, 'UTF8'), 1 FROM generate_series(1, 20000) AS n" >/dev/null
mount_backend "$(uri app)" ttl=10
swept() { [ "$(sql 'SELECT count(*) FROM leasefs.ticket')" -lt 10 ]; }
expect eventually 40 swept
expect unmount "$MNT"

it "the first mount makes the schema if it may, under the name that it is given"
mount_backend "$(uri postgres other '?schema=mine')" ttl=10
expect touch "$MNT/x"
expect_is "$(psql -XqtA -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres other -c 'SELECT count(*) FROM mine.ticket WHERE id IS NOT NULL')" 1
expect rm "$MNT/x"
expect unmount "$MNT"
mount_backend "$(uri postgres other '?schema=later')" ttl=10,background
expect eventually 10 touch "$MNT/x"
expect rm "$MNT/x"
expect unmount "$MNT"

it "a user and a password come from credentials="
sql "ALTER ROLE app PASSWORD 'secret'" >/dev/null
sed -i '1i host all app 127.0.0.1/32 scram-sha-256' "$POSTGRESQL_SOCKETS/data/pg_hba.conf"
sql 'SELECT pg_reload_conf()' >/dev/null
(umask 077 && echo app:secret >"$TEST_DIR/right" && echo app:guess >"$TEST_DIR/wrong")
refused 'password authentication failed for user "app"' "credentials=$TEST_DIR/wrong"
refused 'the server requires a password: put USER:PASSWORD in a file' '' "$(uri app)"
mount_backend "postgresql://127.0.0.1:$POSTGRESQL_PORT/postgres" "ttl=10,credentials=$TEST_DIR/right"
expect touch "$MNT/x"
expect_not grep -q secret "$MNT/.leasefs/status" "$LOG" /proc/self/mountinfo
sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasefs'" >/dev/null
expect eventually 20 logged "$LOG" 'connected again'
expect rm "$MNT/x"
expect unmount "$MNT"

it "a service file, a password file and TLS work as in psql, when a mount connects again, too"
mkdir "$TEST_DIR/home"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$TEST_DIR/key" -out "$TEST_DIR/home/root.crt" 2>/dev/null
"${postgresql_user[@]}" cp "$TEST_DIR/home/root.crt" "$POSTGRESQL_DATA/server.crt"
(umask 077 && cat "$TEST_DIR/key") | "${postgresql_user[@]}" sh -c "umask 077; cat >'$POSTGRESQL_DATA/server.key'"
sed -i '1i hostssl all app 127.0.0.1/32 scram-sha-256\nhostnossl all app 127.0.0.1/32 reject' "$POSTGRESQL_DATA/pg_hba.conf"
sql 'ALTER SYSTEM SET ssl = on' 'SELECT pg_reload_conf()' >/dev/null
printf '[locks]\nhost=127.0.0.1\nport=%s\ndbname=postgres\nuser=app\nsslmode=verify-full\nsslrootcert=%s\n' \
    "$POSTGRESQL_PORT" "$TEST_DIR/home/root.crt" >"$TEST_DIR/home/services"
(umask 077 && echo "127.0.0.1:$POSTGRESQL_PORT:postgres:app:secret" >"$TEST_DIR/home/.pgpass")
export PGSERVICEFILE=$TEST_DIR/home/services
refused 'the server requires a password: put USER:PASSWORD in a file' '' 'postgresql://?service=locks'
home=$HOME
export HOME=$TEST_DIR/home
refused 'root certificate file "/none" does not exist' '' 'postgresql://?service=locks&sslrootcert=/none'
refused 'pg_hba.conf rejects connection' '' 'postgresql://?service=locks&sslmode=disable'
refused 'definition of service "none" not found' '' 'postgresql://?service=none'
mount_backend 'postgresql://?service=locks' ttl=10
encrypted() { [ "$(sql "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.usename = 'app'")" = t ]; }
expect encrypted
expect touch "$MNT/x"
sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasefs'" >/dev/null
expect eventually 20 logged "$LOG" 'connected again'
expect encrypted
expect rm "$MNT/x"
expect unmount "$MNT"
export HOME=$home
unset PGSERVICEFILE
sql 'ALTER SYSTEM SET ssl = off' 'SELECT pg_reload_conf()' >/dev/null
sed -i 1,2d "$POSTGRESQL_DATA/pg_hba.conf"
sql 'SELECT pg_reload_conf()' >/dev/null

it "weak settings of the server are warnings in the log and the status"
mount_backend "$POSTGRESQL_URI" ttl=10
expect logged "$LOG" 'fsync is off'
sql "ALTER ROLE postgres SET synchronous_commit = off" >/dev/null
sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasefs'" >/dev/null
expect eventually 20 logged "$LOG" 'synchronous_commit is off'
expect grep -q 'synchronous_commit is off' "$MNT/.leasefs/status"
sql "ALTER ROLE postgres RESET synchronous_commit" >/dev/null

it "settings of the role do not change what a mount does"
sql "ALTER ROLE postgres SET default_transaction_isolation = serializable" "ALTER ROLE postgres SET search_path = theirs" \
    "ALTER ROLE postgres SET bytea_output = escape" "ALTER ROLE postgres SET default_transaction_read_only = on" \
    "ALTER ROLE postgres SET statement_timeout = 1" >/dev/null
(SQL_USER=app PGPASSWORD=secret sql "SELECT 1" >/dev/null)
mount_backend "$POSTGRESQL_URI" ttl=10
printf 'content \1\377' >"$TEST_DIR/bytes"
expect cp "$TEST_DIR/bytes" "$MNT/x"
expect cmp "$TEST_DIR/bytes" "$MNT/x"
expect rm "$MNT/x"
psql -Xq -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres -c 'SET statement_timeout = 0' \
    -c 'SET default_transaction_read_only = off' -c 'ALTER ROLE postgres RESET ALL'
expect unmount "$MNT"

mount_backend "$POSTGRESQL_URI" ttl=10
MOUNT_A=$MNT LOG_A=$LOG
actor A

it "an open transaction that keeps a name is reported by its session, and stops only that name"
expect mkdir "$MNT/kept" # the kernel makes one name at a time in a directory
psql -Xq -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres -c "SET application_name = culprit" \
    -c BEGIN -c "SELECT leasefs.try_lock('kept/stopped', 't', '60 s')" -c "SELECT pg_sleep(60)" >/dev/null 2>&1 &
culprit=$!
started+=("$culprit")
keeps() { [ "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted")" != 0 ]; }
expect eventually 10 keeps
expect_not touch "$MNT/kept/stopped"
expect eventually 10 logged "$LOG" "kept/stopped: an open transaction keeps the lock from all mounts: PID [0-9]*, role postgres, application 'culprit'"
(while :; do flock -w 1 "$MNT/kept/stopped" true 2>/dev/null; done) &
asker=$!
started+=("$asker")
times=()
for _ in {1..9}; do
    before=${EPOCHREALTIME/./}
    expect touch "$MNT/free"
    times+=("$(((${EPOCHREALTIME/./} - before) / 1000))")
    expect rm "$MNT/free"
    pause 0.1
done
mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
say "touch of another name: ${times[*]} ms"
expect test "${times[1]}" -lt 200 # of nine: each was a second when a call waited as long as 2 s
end_process "$asker"
end_process "$culprit"
sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'culprit'" >/dev/null
expect eventually 10 touch "$MNT/kept/stopped"
expect rm "$MNT/kept/stopped"

it "a role that takes our advisory locks is reported, too"
psql -Xq -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U guest postgres \
    -c "SELECT pg_advisory_lock(1818322803, hashtext('taken'))" -c "SELECT pg_sleep(30)" >/dev/null 2>&1 &
culprit=$!
started+=("$culprit")
expect eventually 20 keeps
expect_not touch "$MNT/taken"
expect eventually 15 logged "$LOG" "taken: an open transaction keeps the lock from all mounts: PID [0-9]*, role guest"
end_process "$culprit"
sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guest'" >/dev/null
expect eventually 10 touch "$MNT/taken"
expect rm "$MNT/taken"

it "rubbish in rows ends that lock, and no other"
expect touch "$MNT/other"
for change in "meta = '\\xff00ff'" "number = -5" "kind = 99" "mode = 7" "mount = 'none'" "content = repeat('x', 200000)::bytea" \
    "meta = NULL" "x = '{[1,5)}'" "ttl = -1" "acquired = NULL" "deadline = NULL" "id = 'rubbish'"; do
    touch "$MNT/rubbish" 2>/dev/null
    sql "UPDATE leasefs.ticket SET $change WHERE path = 'rubbish'" >/dev/null
    timeout 20 ls -l "$MNT" >/dev/null 2>&1
    timeout 20 cat "$MNT/rubbish" >/dev/null 2>&1
    timeout 20 getfattr -d -m user.lease "$MNT/rubbish" >/dev/null 2>&1
    timeout 20 rm -f "$MNT/rubbish" >/dev/null 2>&1
    sql "DELETE FROM leasefs.ticket WHERE path = 'rubbish'" >/dev/null
    expect connected
    expect test -e "$MNT/other"
done
expect eventually 30 touch "$MNT/rubbish"
expect rm "$MNT/rubbish"
expect rm "$MNT/other"

it "tables that are gone are an error, and no hang; locks go on when they are back"
expect touch "$MNT/before"
sql 'ALTER SCHEMA leasefs RENAME TO away' >/dev/null
expect_not timeout 20 touch "$MNT/during"
sql 'ALTER SCHEMA away RENAME TO leasefs' >/dev/null
expect eventually 20 touch "$MNT/during"
expect eventually 20 rm "$MNT/during"
expect rm -f "$MNT/before"

it "columns of other types, and functions that the role may no longer execute, are errors that the log names; no lock is lost"
expect touch "$MNT/before"
# PostgreSQL 17 alters no table whose rows are an argument of a function, such as leasefs.ticket
sql "ALTER TABLE leasefs.life ALTER stamp TYPE bytea USING convert_to(stamp, 'UTF8')" >/dev/null
expect_not timeout 20 touch "$MNT/during"
expect eventually 20 logged "$LOG" 'the server refuses a request: operator does not exist: .*bytea.*(SQLSTATE 42883)'
sql "ALTER TABLE leasefs.life ALTER stamp TYPE text USING convert_from(stamp, 'UTF8')" >/dev/null
expect eventually 20 touch "$MNT/during"
expect rm "$MNT/during"
expect test -e "$MNT/before"
expect rm "$MNT/before"
mount_backend "postgresql://127.0.0.1:$POSTGRESQL_PORT/postgres" "ttl=10,credentials=$TEST_DIR/right"
expect touch "$MNT/before"
sql 'REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA leasefs FROM app' >/dev/null
expect_not timeout 20 touch "$MNT/during"
expect eventually 20 logged "$LOG" 'the server refuses a request: permission denied for function .*(SQLSTATE 42501)'
expect grep -q '^warning: the server refuses a request: permission denied for function .*(SQLSTATE 42501)' "$MNT/.leasefs/status"
sql 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasefs TO app' >/dev/null
expect eventually 20 rm "$MNT/before"
expect unmount "$MNT"
MNT=$MOUNT_A LOG=$LOG_A

it "a role without connections left is named"
sql 'ALTER ROLE app CONNECTION LIMIT 0' >/dev/null
refused 'too many connections for role "app"' "credentials=$TEST_DIR/right" "postgresql://127.0.0.1:$POSTGRESQL_PORT/postgres"

it "a server that is stopped is away, and there again when it goes on"
pids=$(pgrep -P "$POSTGRESQL_PID") || true
# shellcheck disable=SC2086
kill -STOP $pids "$POSTGRESQL_PID"
expect_not timeout 30 touch "$MNT/stopped"
# shellcheck disable=SC2086
kill -CONT "$POSTGRESQL_PID" $pids
expect eventually 30 touch "$MNT/later"
expect rm "$MNT/later"

it "in the background a mount is there when the server is"
kill -INT "$POSTGRESQL_PID"
expect eventually 30 gone "$POSTGRESQL_PID"
refused 'Connection refused'
mount_backend "$POSTGRESQL_URI" ttl=10,background
expect_not connected
expect eventually 20 logged "$LOG" 'Connection refused; Is the server running .*?; trying again$'
expect postgresql_launch -c fsync=off
expect eventually 20 connected
expect touch "$MNT/later"
expect rm "$MNT/later"

it "a standby is refused"
expect "${postgresql_user[@]}" "$postgresql_programs/pg_basebackup" -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres -c fast -R \
    -D "$POSTGRESQL_SOCKETS/standby"
standby_port=$((POSTGRESQL_PORT + 1))
"${postgresql_user[@]}" setpriv --pdeathsig QUIT "$postgresql_programs/postgres" -D "$POSTGRESQL_SOCKETS/standby" -c "port=$standby_port" \
    -c "unix_socket_directories=$POSTGRESQL_SOCKETS" -c listen_addresses=127.0.0.1 -c shared_buffers=16MB -c fsync=off \
    </dev/null >"$TEST_DIR/standby.log" 2>&1 &
started+=("$!")
expect eventually 60 "$postgresql_programs/pg_isready" -q -h "$POSTGRESQL_SOCKETS" -p "$standby_port"
refused 'server is in hot standby mode' '' "postgresql://postgres@127.0.0.1:$standby_port/postgres"
refused 'the server is a standby, which takes no locks' '' "postgresql://postgres@127.0.0.1:$standby_port/postgres?target_session_attrs=any"

it "PgBouncer in transaction mode is refused, with and without the options that it does not know"
pgbouncer=$(command -v pgbouncer || echo /usr/sbin/pgbouncer)
if [ -x "$pgbouncer" ]; then
    pooler_port=$((POSTGRESQL_PORT + 2))
    echo '"postgres" ""' >"$POSTGRESQL_SOCKETS/users"
    for ignored in application_name "options,extra_float_digits"; do
        printf '%s\n' '[databases]' "postgres = host=127.0.0.1 port=$POSTGRESQL_PORT" '[pgbouncer]' "listen_port = $pooler_port" \
            'listen_addr = 127.0.0.1' 'unix_socket_dir =' 'auth_type = trust' "auth_file = $POSTGRESQL_SOCKETS/users" \
            'pool_mode = transaction' "ignore_startup_parameters = $ignored" >"$POSTGRESQL_SOCKETS/pgbouncer.ini"
        "${postgresql_user[@]}" "$pgbouncer" -q "$POSTGRESQL_SOCKETS/pgbouncer.ini" </dev/null >>"$TEST_DIR/pgbouncer.log" 2>&1 &
        pooler=$!
        started+=("$pooler")
        expect eventually 20 psql -XqtA "host=127.0.0.1 port=$pooler_port user=postgres dbname=postgres" -c 'SELECT 1' >/dev/null
        refused 'a pooler such as pgbouncer answers in place of the server' '' "postgresql://postgres@127.0.0.1:$pooler_port/postgres"
        end_process "$pooler"
    done
else
    say "no pgbouncer: passed over"
fi

it "of several hosts the one that takes locks is found"
mount_backend "postgresql://postgres@127.0.0.1:$standby_port,127.0.0.1:$POSTGRESQL_PORT/postgres" ttl=10
expect touch "$MNT/x"
expect rm "$MNT/x"

it "a step of the server's clock is reported at the next heartbeat of a mount"
library=$(find /usr/lib/*/faketime /usr/lib/faketime -name libfaketime.so.1 2>/dev/null | head -1)
if [ -n "$library" ]; then
    kill -INT "$POSTGRESQL_PID"
    expect eventually 30 gone "$POSTGRESQL_PID"
    echo +0 >"$TEST_DIR/clock"
    # for the server only: setpriv(1) under the libfaketime of Debian 13 never starts another program
    postgresql_env=(env "LD_PRELOAD=$library" "FAKETIME_TIMESTAMP_FILE=$TEST_DIR/clock" FAKETIME_CACHE_DURATION=1 DONT_FAKE_MONOTONIC=1)
    expect eventually 30 postgresql_launch -c fsync=off
    mount_backend "$POSTGRESQL_URI" ttl=10
    expect touch "$MNT/x"
    echo +3600 >"$TEST_DIR/clock"
    expect eventually 30 logged "$LOG" 'clock was set forward by 3[56][0-9][0-9]... ms: locks may have ended early'
    echo +0 >"$TEST_DIR/clock"
    expect eventually 30 logged "$LOG" 'clock was set back by 3[56][0-9][0-9]... ms'
else
    say "no libfaketime: passed over"
fi

finish
