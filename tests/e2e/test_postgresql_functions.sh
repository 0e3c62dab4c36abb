#!/bin/bash
# The functions of the PostgreSQL store: every interleaving of two or three sessions, and what any SQL client may do.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
"$PYTHON" -c 'import psycopg2' 2>/dev/null || skip_all "no psycopg2 (package python3-psycopg2)"

postgresql_start -c fsync=off

it "the schema is printed, and made by psql"
"$LEASEFS" --print-schema=postgresql >"$TEST_DIR/schema.sql"
expect psql -Xq1 -v ON_ERROR_STOP=1 -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres -f "$TEST_DIR/schema.sql" postgres
expect_is "$(sql 'SELECT leasefs.format_version()')" 2
expect_re "$("$LEASEFS" --print-schema=oracle 2>&1)" 'write --print-schema=postgresql'
for name in '' 1a 'a;b'; do
    expect_re "$("$LEASEFS" --print-schema=postgresql:"$name" 2>&1)" '^leasefs: error: .*; NAME has lower case letters, digits'
done
expect_is "$("$LEASEFS" --print-schema=postgresql:mine | grep -c 'leasefs\.')" 0

it "every interleaving of sessions keeps what the functions promise"
"$PYTHON" "$E2E_DIR/postgresql_isolation.py" "$POSTGRESQL_SOCKETS" "$POSTGRESQL_PORT" >"$TEST_DIR/isolation" 2>&1
expect_is $? 0 "exit status"
sed 's/^/# /' "$TEST_DIR/isolation"
expect_re "$(tail -1 "$TEST_DIR/isolation")" '^# [0-9]+ orders$'

it "SQL takes, renews and gives back a lock, with tokens that grow"
first=$(sql "SELECT leasefs.try_lock('backup', 'mine', '30 s')")
expect_re "$first" '^[1-9][0-9]{15}$'
expect_is "$(sql "SELECT leasefs.try_lock('backup', 'other', '30 s') IS NULL")" t
expect_is "$(sql "SELECT leasefs.try_lock('backup', 'mine', '30 s')")" "$first" "token of the same holder"
expect_is "$(sql "SELECT leasefs.renew_lock('backup', 'other', '30 s')")" f
expect_is "$(sql "SELECT leasefs.renew_lock('backup', 'mine', '30 s')")" t
expect_is "$(sql "SELECT leasefs.unlock('backup', 'other')")" f
expect_is "$(sql "SELECT leasefs.unlock('backup', 'mine')")" t
expect_is "$(sql "SELECT leasefs.try_lock('backup', 'other', '30 s') > $first")" t
expect_is "$(sql "SELECT leasefs.unlock('backup', 'other')")" t

it "a lock of SQL ends with its term"
expect_re "$(sql "SELECT leasefs.try_lock('short', 'mine', '200 ms')")" '^[0-9]+$'
pause 0.25
expect_is "$(sql "SELECT leasefs.renew_lock('short', 'mine', '30 s')")" f
expect_re "$(sql "SELECT leasefs.try_lock('short', 'other', '30 s')")" '^[0-9]+$'

it "names, tokens and terms that cannot be are refused in words"
for name in '' / /a a/ a//b . .. a/../b "$(printf 'x%.0s' {1..256})"; do
    expect_re "$(sql "SELECT leasefs.try_lock('$name', 't', '1 s')")" 'is no name of a lock'
done
expect_re "$(sql "SELECT leasefs.try_lock('a', '', '1 s')")" 'the token must be a text'
expect_re "$(sql "SELECT leasefs.try_lock('a', 't', '1 ms')")" 'the term must be between'
expect_re "$(sql "SELECT leasefs.try_lock('none/a', 't', '1 s')")" 'its directory is not there'

it "a transaction block that can be seen is refused"
expect_re "$(sql "BEGIN" "CREATE TABLE written ()" "SELECT leasefs.try_lock('a', 't', '1 s')" COMMIT)" 'outside a transaction block'
expect_re "$(sql "BEGIN" "SELECT pg_sleep(0.2)" "SELECT leasefs.unlock('a', 't')" COMMIT)" 'outside a transaction block'

it "functions of the schema are safe from a search_path of the caller"
expect_is "$(sql 'CREATE SCHEMA evil; CREATE FUNCTION evil.nextval(text) RETURNS bigint LANGUAGE sql AS $$SELECT 1::bigint$$' \
    "SET search_path = evil, pg_catalog" "SELECT leasefs.try_lock('safe', 't', '1 s') > 1000000")" t
unsafe=$(sql "SELECT p.proname FROM pg_proc p WHERE pronamespace = 'leasefs'::regnamespace AND prosecdef AND NOT EXISTS (
    SELECT FROM unnest(proconfig) c WHERE c LIKE 'search_path=pg_catalog, pg_temp%')")
expect_is "$(sort <<<"$unsafe" | xargs)" "acquire release stat" "functions with the owner's rights and no search_path"
expect_is "$(sql 'CREATE FUNCTION evil.fails(anyelement) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION $x$evil$x$; END$$' \
    'CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.fails(VALUE))' \
    'CREATE DOMAIN evil.int8multirange AS pg_catalog.int8multirange CHECK (evil.fails(VALUE))')" ""
for call in "acquire('a', '', 'a', false, 'i', 'm', 'i', 1, 0, 9, 9, true, false, NULL, NULL, NULL, NULL, NULL, '', '', NULL)" \
    "release('a', 'i', 'm', NULL, NULL, NULL)" "stat('a', '', 'a')"; do
    expect_re "$(sql "SET search_path = evil, pg_catalog" "SELECT leasefs.$call")" 'this function is for mounts'
done

it "a role that may execute the functions needs no other right, and another role has none"
sql "CREATE ROLE app LOGIN" "GRANT USAGE ON SCHEMA leasefs TO app" "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasefs TO app" \
    "CREATE ROLE stranger LOGIN" "GRANT USAGE ON SCHEMA leasefs TO stranger" >/dev/null
expect_re "$(SQL_USER=app sql "SELECT leasefs.try_lock('app', 't', '1 s')")" '^[0-9]+$'
expect_re "$(SQL_USER=app sql "SELECT count(*) FROM leasefs.ticket")" 'permission denied'
expect_re "$(SQL_USER=stranger sql "SELECT leasefs.try_lock('app', 't', '1 s')")" 'permission denied'

it "the example sessions of leasefs-postgresql(7) print the output that it shows"
export PGHOST=$POSTGRESQL_SOCKETS PGPORT=$POSTGRESQL_PORT PGUSER=postgres
mkdir "$TEST_DIR/bin"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
psql -Xqc 'CREATE DATABASE mydb' postgres
shown=0
while IFS= read -r -d '' example; do
    [[ $example == '$ '* ]] || continue
    sed -n 's/^\$ //p; s/^mydb=> \(.*\)/psql mydb -c "\1"/p' <<<"$example" >"$TEST_DIR/session"
    printed=$(PATH=$TEST_DIR/bin:$PATH bash -eo pipefail "$TEST_DIR/session" </dev/null 2>&1)
    expect_is $? 0 "exit status of: ${example%%$'\n'*}"
    wanted=$(sed '/^\$ /d; /^mydb=> /d' <<<"${example%$'\n'}")
    [ -z "$wanted" ] || expect_is "${printed//[0-9]/N}" "${wanted//[0-9]/N}"
    shown=$((shown + 1))
done < <(examples leasefs-postgresql.7 DESCRIPTION
    examples leasefs-postgresql.7 "SQL FOR EVERYBODY")
expect_is "$shown" 2 sessions
expect_is "$(psql -XqAtU locks -c "SELECT leasefs.unlock('backup', 'nobody')" mydb)" f "the role may call the functions"
unset PGHOST PGPORT PGUSER

it "thousands of cycles leave no more behind than one"
cat >"$TEST_DIR/cycle.sql" <<'END'
SELECT leasefs.acquire('cycle', '', 'cycle', false, 'id', 'm', 'i', 1, 0, 30000, 6000, true, false, NULL, NULL, NULL, NULL, NULL, 'meta', '', NULL);
SELECT leasefs.release('cycle', 'id', 'm', NULL, NULL, NULL);
END
before=$(sql "SELECT pg_total_relation_size('leasefs.ticket')")
PGOPTIONS='-c synchronous_commit=off -c search_path=pg_catalog,\ pg_temp' "$postgresql_programs/pgbench" -n -M prepared -t "${CYCLES:-20000}" -f "$TEST_DIR/cycle.sql" \
    -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres >"$TEST_DIR/pgbench" 2>&1
expect_is $? 0 "exit status"
after=$(sql "SELECT pg_total_relation_size('leasefs.ticket')")
expect test "$after" -le $((before + 65536))
say "$before bytes before, $after behind"

it "deleting rows at the same time never sets the tokens back"
cat >"$TEST_DIR/forget.sql" <<'END'
\set ahead random(10, 1000)
INSERT INTO leasefs.ticket (path, slot, place, last)
SELECT convert_to('ahead' || :client_id, 'UTF8'), 0, 0, last_value + :ahead FROM leasefs.fence RETURNING last \gset
SELECT leasefs.forget(convert_to('ahead' || :client_id, 'UTF8'));
SELECT 1 / (last_value >= :last)::int FROM leasefs.fence;
END
PGOPTIONS='-c synchronous_commit=off' "$postgresql_programs/pgbench" -n -c 8 -j 2 -t 500 -f "$TEST_DIR/forget.sql" \
    -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres postgres >"$TEST_DIR/pgbench" 2>&1
expect_is $? 0 "exit status"

finish
