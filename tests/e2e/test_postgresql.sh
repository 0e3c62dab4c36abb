#!/bin/bash
# A PostgreSQL server as the store: two mounts, and SQL beside them; what becomes of locks when server, sessions and daemon
# are killed.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
# shellcheck source=two_mounts.sh
. "$(dirname "$0")/two_mounts.sh"

connected() { grep -q '^state: connected$' "$1/.leasefs/status"; }

postgresql_start
mount_two ttl=10
on "$MOUNT_B" actor B
actor A

two_mounts single

it "ranges of bytes are locked apart"
says A 'record(f, "SETLK", "WRLCK", 0, 10)' ok
says B 'record(f, "SETLK", "WRLCK", 5, 10)' '@(EAGAIN|EACCES)'
says B 'record(f, "SETLK", "WRLCK", 20, 10)' ok
says A 'record(f, "SETLK", "UNLCK", 0, 10)' ok
says B 'record(f, "SETLK", "WRLCK", 5, 10)' ok
says B 'record(f, "SETLK", "UNLCK", 0, 100)' ok

it "sequence files stand in one queue over both mounts, as many holding as the directory is wide"
expect mkdir "$MOUNT_A/queue"
expect setfattr -n user.lease.width -v 2 "$MOUNT_B/queue"
says A 't = op("queue/job-", "RDWR|CREAT"); flock(t, "EX")' ok
says A 'u = op("queue/job-", "RDWR|CREAT"); flock(u, "EX")' ok
says B 't = op("queue/job-", "RDWR|CREAT"); flock(t, "EX|NB")' EAGAIN
expect_is "$(ls "$MOUNT_B/queue" | tr '\n' ' ')" 'job-0000000000 job-0000000001 job-0000000002 '
tell B 'flock(t, "EX")'
says A 'close(t)' ok
expect_is "$(hear B)" ok
says A 'close(u)' ok
says B 'close(t)' ok
expect eventually 10 rmdir "$MOUNT_A/queue"

it "a lease moves to a name that is free, with its content and a greater token"
says A 'acquire("named", "text")' ok
token=$(attribute named token)
says B 'acquire("taken")' ok
says A 'mv("named", "taken")' EBUSY
says A 'mv("named", "moved")' ok
expect_is "$(cat "$MOUNT_B/moved")" text
expect test "$(attribute moved token)" -gt "$token"
expect gone_from "$MOUNT_B" named
says A 'acquire("second", "more")' ok
says A 'mv("moved", "second")' ok
expect_is "$(cat "$MOUNT_B/second")" text
expect gone_from "$MOUNT_B" moved
says B 'rm("taken")' ok
says A 'rm("second")' ok

it "SQL and both mounts exclude each other"
expect_re "$(sql "SELECT leasefs.try_lock('backup', 'mine', '30 s')")" '^[0-9]+$'
expect_not touch "$MOUNT_A/backup"
expect_is "$(ls "$MOUNT_B")" *backup*
expect_is "$(sql "SELECT leasefs.unlock('backup', 'mine')")" t
expect touch "$MOUNT_A/backup"
expect_is "$(sql "SELECT leasefs.try_lock('backup', 'mine', '30 s') IS NULL")" t
expect rm "$MOUNT_A/backup"
expect_re "$(sql "SELECT leasefs.try_lock('backup', 'mine', '30 s')")" '^[0-9]+$'
says A 'f = op("backup", "RDONLY"); flock(f, "EX|NB")' EAGAIN
tell A 'flock(f, "EX")'
expect eventually 10 waiters backup 1
expect_is "$(sql "SELECT leasefs.unlock('backup', 'mine')")" t
expect_is "$(hear A)" ok "a waiter behind SQL"
says A 'close(f)' ok

it "root breaks a lock of the other mount, whose holder learns it"
says B 'f = op("broken", "RDWR|CREAT"); flock(f, "EX")' ok
expect setfattr -n user.lease.break -v 1 "$MOUNT_A/broken"
says B 'write(f, "x")' ESTALE
says B 'close(f)' '*'

it "in 1,000 attempts of two mounts and SQL nobody overlaps"
cat >"$TEST_DIR/attempt.py" <<'END'
import os, sys, time
mount, count, shared = sys.argv[1], int(sys.argv[2]), sys.argv[3]
overlaps = got = 0
for _ in range(count):
    time.sleep(0.001)  # so that each of them gets it
    try:
        fd = os.open(mount + "/race", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except OSError:
        continue
    os.close(fd)
    got += 1
    try:
        os.close(os.open(shared, os.O_CREAT | os.O_EXCL))
        os.unlink(shared)
    except FileExistsError:
        overlaps += 1
    os.unlink(mount + "/race")
print(overlaps, got)
END
cat >"$TEST_DIR/attempt_sql.py" <<'END'
import os, psycopg2, sys, time
sockets, port, count, shared = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
conn = psycopg2.connect(host=sockets, port=port, user="postgres", dbname="postgres")
conn.autocommit = True
c = conn.cursor()
overlaps = got = 0
for _ in range(count):
    time.sleep(0.001)
    c.execute("SELECT leasefs.try_lock('race', 'sql', '30 s')")
    if c.fetchone()[0] is None:
        continue
    got += 1
    try:
        os.close(os.open(shared, os.O_CREAT | os.O_EXCL))
        os.unlink(shared)
    except FileExistsError:
        overlaps += 1
    c.execute("SELECT leasefs.unlock('race', 'sql')")
print(overlaps, got)
END
ATTEMPTS=${ATTEMPTS:-333}
"$PYTHON" "$TEST_DIR/attempt.py" "$MOUNT_A" "$ATTEMPTS" "$TEST_DIR/inside" >"$TEST_DIR/one" &
one=$!
"$PYTHON" "$TEST_DIR/attempt.py" "$MOUNT_B" "$ATTEMPTS" "$TEST_DIR/inside" >"$TEST_DIR/two" &
two=$!
"$PYTHON" "$TEST_DIR/attempt_sql.py" "$POSTGRESQL_SOCKETS" "$POSTGRESQL_PORT" "$ATTEMPTS" "$TEST_DIR/inside" >"$TEST_DIR/three"
wait "$one" "$two"
for part in one two three; do
    read -r overlaps got <"$TEST_DIR/$part"
    say "$part: $got of $ATTEMPTS attempts held"
    expect_is "$overlaps" 0 overlaps
    expect test "$got" -gt 0
done

it "locks outlive the sessions of the mounts, and waiters stay in their order"
says A 'f = op("kept", "RDWR|CREAT"); flock(f, "EX")' ok
token=$(attribute kept token)
says B 'f = op("kept", "RDWR|CREAT")' ok
tell B 'flock(f, "EX")'
expect eventually 10 waiters kept 1
sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'leasefs'" >/dev/null
expect eventually 20 logged "$LOG_A" 'connected again'
expect eventually 20 logged "$LOG_B" 'connected again'
expect_is "$(attribute kept token)" "$token"
expect waiters kept 1
says A 'flock(f, "UN")' ok
expect_is "$(hear B)" ok
says B 'close(f)' ok
says A 'close(f)' ok

it "locks outlive a kill -9 and a new start of the server"
says A 'f = op("kept", "RDWR|CREAT"); flock(f, "EX")' ok
token=$(attribute kept token)
end_process "$POSTGRESQL_PID"
until postgresql_launch; do pause 0.2; done # not before the last of its children has ended
expect eventually 30 connected "$MOUNT_A"
expect eventually 30 connected "$MOUNT_B"
expect_is "$(attribute kept token)" "$token"
says B 'f = op("kept", "RDWR|CREAT"); flock(f, "EX|NB")' EAGAIN
says A 'flock(f, "UN"); close(f)' ok # a close alone does not wait for the release
says B 'flock(f, "EX|NB")' ok
expect test "$(attribute kept token)" -gt "$token"
says B 'close(f)' ok

it "kill -9 of single sessions does no harm to what is under way"
(for _ in {1..40}; do
    sql "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'leasefs'" >/dev/null
    pause 0.1
done) &
killer=$!
"$PYTHON" "$TEST_DIR/attempt.py" "$MOUNT_A" 150 "$TEST_DIR/inside" >"$TEST_DIR/one" &
one=$!
"$PYTHON" "$TEST_DIR/attempt.py" "$MOUNT_B" 150 "$TEST_DIR/inside" >"$TEST_DIR/two"
wait "$one" "$killer"
for part in one two; do
    read -r overlaps got <"$TEST_DIR/$part"
    say "$part: $got of 150 attempts held"
    expect_is "$overlaps" 0 overlaps
done

it "a mount that starts again has its leases, and the other mount never"
expect touch "$MOUNT_A/mine"
token=$(attribute mine token)
crash "$MOUNT_A"
expect_not touch "$MOUNT_B/mine"
expect mount_at "$MOUNT_A" "$POSTGRESQL_URI" ttl=10
expect_is "$(on "$MOUNT_A" attribute mine token)" "$token"
expect rm "$MOUNT_A/mine"
expect touch "$MOUNT_B/mine"
expect rm "$MOUNT_B/mine"

finish
