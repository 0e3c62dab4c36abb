#!/bin/bash
# ShedLock's table in a PostgreSQL database: its statements, files of two mounts and leasefs.try_lock exclude each other.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
"$PYTHON" -c 'import psycopg2' 2>/dev/null || skip_all "no psycopg2 (package python3-psycopg2)"

refused() { # WHY OPTION [URI]: as a regular expression
    local said status=0
    said=$(timeout -s KILL 60 "$LEASEFS" -f -o "$2" "${3:-$POSTGRESQL_URI}" "$TEST_DIR/refused" 2>&1) || status=$?
    expect_is "$status" 1 "exit status"
    expect_re "$said" "$1" "the error"
    expect_is "$(wc -l <<<"$said")" 1 "lines"
}
shedlock() { "$PYTHON" "$E2E_DIR/shedlock.py" "$POSTGRESQL_SOCKETS" "$POSTGRESQL_PORT" "$@"; }
row() { sql "SELECT lock_until > timezone('UTC', now()), locked_by FROM shedlock WHERE name = '$1'"; }

postgresql_start -c fsync=off
mkdir "$TEST_DIR/refused"
# as ShedLock's manual has it
sql "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL,
    locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))" "CREATE ROLE app LOGIN" "CREATE TABLE other (name text PRIMARY KEY)" \
    "CREATE TABLE loose (LIKE shedlock)" "CREATE TABLE zoned (LIKE shedlock INCLUDING ALL)" \
    "ALTER TABLE zoned ALTER lock_until TYPE timestamptz" >/dev/null

it "a table that ShedLock cannot have made is refused"
refused 'shedlock=none: leasefs: there is no table none' shedlock=none
refused 'shedlock=public.none: leasefs: there is no table public.none' shedlock=public.none
refused 'the table public.other has no columns: lock_until timestamp without time zone, locked_at' shedlock=other
refused 'the table public.zoned has no columns: lock_until timestamp without time zone$' shedlock=zoned
refused 'the table public.loose has no primary key' shedlock=public.loose
refused 'option shedlock= is only for postgresql://' shedlock=x memory

it "a role that does not own the schema is told what its owner must run"
sql 'GRANT USAGE ON SCHEMA leasefs TO app' 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA leasefs TO app' >/dev/null
refused "run as the schema's owner: SELECT leasefs.use_shedlock\('shedlock'\)" shedlock=shedlock "postgresql://app@127.0.0.1:$POSTGRESQL_PORT/postgres"

mount_backend "$POSTGRESQL_URI" ttl=10
MOUNT_B=$MNT LOG_B=$LOG
expect touch "$MOUNT_B/before"
mount_backend "$POSTGRESQL_URI" ttl=10,shedlock=shedlock
MOUNT_A=$MNT
on "$MOUNT_B" actor B
actor A

it "the table is in use for all mounts from then on, and also shows what was held before"
expect_is "$(row before)" "t|leasefs.mount"
expect rm "$MOUNT_B/before"
expect_is "$(row before)" "f|leasefs.mount"
refused 'the table public.shedlock is in use already' shedlock=loose
mount_backend "postgresql://app@127.0.0.1:$POSTGRESQL_PORT/postgres" ttl=10,shedlock=shedlock
expect unmount "$MNT"
MNT=$MOUNT_A

it "a lock that is held is refused to ShedLock, and free for it when it is released"
for mount in "$MOUNT_A" "$MOUNT_B"; do
    expect touch "$mount/job"
    expect_is "$(shedlock lock job)" f
    expect rm "$mount/job"
    expect_is "$(shedlock lock job)" t
    expect_is "$(shedlock unlock job)" t
done
says A 'f = op("job", "RDWR|CREAT"); flock(f, "SH")' ok
expect_is "$(shedlock lock job)" f "beside a shared lock"
says A 'flock(f, "UN")' ok
says A 'record(f, "SETLK", "WRLCK", 5, 10)' ok
expect_is "$(shedlock lock job)" f "beside a lock of bytes"
says A 'close(f)' ok
expect_re "$(sql "SELECT leasefs.try_lock('job', 't', '30 s')")" '^[0-9]+$'
expect_is "$(shedlock lock job)" f "beside SQL"
expect_is "$(sql "SELECT leasefs.unlock('job', 't')")" t

it "a lock of ShedLock is a file that nobody else can take, on mounts and in SQL"
before=$(sql "SELECT max(last) FROM leasefs.ticket WHERE path = 'job'")
expect_is "$(shedlock lock job)" t
for mount in "$MOUNT_A" "$MOUNT_B"; do
    expect test -e "$mount/job"
    expect_is "$(ls "$mount")" job
    expect_not touch "$mount/job"
    expect_not mkdir "$mount/job"
done
expect_is "$(sql "SELECT leasefs.try_lock('job', 't', '30 s') IS NULL")" t
expect test "$(attribute job token)" -gt "$before"
expect_is "$(attribute job kind),$(attribute job mode)" lease,exclusive
says A 'acquire("mine")' ok
says A 'mv("mine", "job")' EBUSY
says A 'rm("mine")' ok
says A 'f = op("job", "RDONLY"); flock(f, "EX|NB")' EAGAIN
expect_is "$(shedlock extend job)" t

it "a waiter on a mount gets it within about a second of ShedLock's unlock, and when the term of a dead client is over"
tell A 'flock(f, "EX")'
expect eventually 10 waiters job 1
expect_is "$(shedlock unlock job)" t
expect_is "$(hear A)" ok
expect_is "$(shedlock lock job)" f
says A 'flock(f, "UN")' ok
expect_is "$(shedlock lock job '1500 milliseconds')" t
tell A 'flock(f, "EX")'
expect_is "$(hear A)" ok
says A 'close(f)' ok

it "a lock is renewed in the table, moves in it, and ends there when it expires"
expect touch "$MOUNT_A/long"
first=$(sql "SELECT lock_until FROM shedlock WHERE name = 'long'")
later() { [ "$(sql "SELECT lock_until > '$first' FROM shedlock WHERE name = 'long'")" = t ]; }
expect eventually 10 later
expect_is "$(sql "SELECT s.lock_until = timezone('UTC', to_timestamp(t.deadline / 1000.0)) FROM shedlock s, leasefs.ticket t
    WHERE s.name = 'long' AND t.path = 'long' AND t.slot = 0")" t
expect mv "$MOUNT_A/long" "$MOUNT_A/moved"
expect_is "$(row long),$(row moved)" "f|leasefs.mount,t|leasefs.mount"
expect setfattr -n user.lease.ttl -v 300ms "$MOUNT_A/moved"
pause 0.4
expect_is "$(shedlock lock moved)" t
expect_is "$(shedlock unlock moved)" t

it "root breaks a lock of ShedLock"
expect_is "$(shedlock lock job)" t
expect setfattr -n user.lease.break -v 1 "$MOUNT_A/job"
expect touch "$MOUNT_B/job"
expect rm "$MOUNT_B/job"

it "names that cannot be ShedLock's are locked as ever"
long=$(printf 'x%.0s' {1..65})
for name in "$long" $'latin1-\344'; do
    expect touch "$MOUNT_A/$name"
    expect_not touch "$MOUNT_B/$name"
    expect rm "$MOUNT_A/$name"
done
expect_is "$(sql 'SELECT count(*) FROM shedlock WHERE char_length(name) > 60')" 0

it "rubbish in the table harms no other lock"
sql "INSERT INTO shedlock VALUES ('a//b', 'infinity', '-infinity', 'x'), ('', 'infinity', 'now', 'x'), ('job', 'infinity', '-infinity', 'x')" \
    "INSERT INTO shedlock VALUES ('far/away', 'infinity', 'infinity', 'x')" \
    "INSERT INTO shedlock VALUES ('job', 'infinity', '-infinity', 'x') ON CONFLICT (name) DO UPDATE SET lock_until = 'infinity', locked_at = '-infinity', locked_by = 'x'" >/dev/null
expect_is "$(ls "$MOUNT_A")" job
expect touch "$MOUNT_A/fine"
expect rm "$MOUNT_A/fine"
sql "DELETE FROM shedlock" >/dev/null

it "in ${ATTEMPTS:=10000} attempts of two mounts, SQL and ShedLock nobody overlaps"
each=$((ATTEMPTS / 4)) pids=()
for part in "mount $MOUNT_A" "mount $MOUNT_B" "sql" "shedlock"; do
    # shellcheck disable=SC2086
    shedlock race "$each" "$TEST_DIR/inside" $part >"$TEST_DIR/race${#pids[@]}" &
    pids+=("$!")
done
wait "${pids[@]}"
for part in 0 1 2 3; do
    read -r overlaps got <"$TEST_DIR/race$part"
    say "$part: $got of $each attempts held"
    expect_is "$overlaps" 0 overlaps
    expect test "$got" -gt 0
done

it "the table is left alone when the owner says so"
sql "SELECT leasefs.use_shedlock(NULL)" >/dev/null
expect_is "$(shedlock lock job)" t
expect touch "$MOUNT_B/job"
expect rm "$MOUNT_B/job"

finish
