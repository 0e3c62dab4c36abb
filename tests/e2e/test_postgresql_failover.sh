#!/bin/bash
# What becomes of locks when a PostgreSQL server forgets: a standby is promoted that does not have the last grants, a server
# crashes that loses nothing, and one that loses the end of its log.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"

logged() { grep -q -- "$2" "$1"; }
connected() { grep -q '^state: connected$' "$1/.leasefs/status"; }
open_again() { ! grep -q '^grace period' "$1/.leasefs/status" && connected "$1"; }
closed() { grep -q '^grace period' "$1/.leasefs/status"; }

TTL=6
postgresql_start
POSTGRESQL_STANDBY_PORT=$((POSTGRESQL_PORT + 1))
mount_two ttl=$TTL
on "$MOUNT_B" actor B
actor A

it "a crash that loses nothing ends with all locks, tokens and waiters, and opens at once"
says A 'f = op("kept", "RDWR|CREAT"); flock(f, "EX")' ok
expect touch "$MOUNT_A/lease"
expect mkdir "$MOUNT_A/q"
says A 't = op("q/job-", "RDWR|CREAT"); flock(t, "EX")' ok
says A 'g = op("ranges", "RDWR|CREAT"); record(g, "SETLK", "WRLCK", 0, 10)' ok
says B 'g = op("ranges", "RDWR|CREAT"); record(g, "SETLK", "RDLCK", 20, 10)' ok
says B 'f = op("kept", "RDWR|CREAT")' ok
tell B 'flock(f, "EX")'
tokens=$(attribute kept token),$(attribute lease token),$(on "$MOUNT_A/q" attribute job-0000000000 token)
end_process "$POSTGRESQL_PID"
until postgresql_launch; do pause 0.2; done
expect eventually 30 open_again "$MOUNT_A"
expect eventually 30 open_again "$MOUNT_B"
expect_is "$(attribute kept token),$(attribute lease token),$(on "$MOUNT_A/q" attribute job-0000000000 token)" "$tokens"
says A 'record(g, "SETLK", "WRLCK", 15, 10)' '@(EAGAIN|EACCES)'
says A 'record(g, "SETLK", "WRLCK", 10, 10)' ok
says A 'flock(f, "UN")' ok
expect_is "$(hear B)" ok
says B 'flock(f, "UN")' ok
says A 'close(t)' ok
expect_is "$(sql 'SELECT state FROM leasefs.epoch')" o

it "so does kill -9 of a session, which the server takes for a crash"
before=$(sql 'SELECT stamp FROM leasefs.epoch')
kill -9 "$(sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'leasefs' LIMIT 1")"
new_epoch() { [ "$(sql 'SELECT stamp FROM leasefs.epoch')" != "$before" ]; }
expect eventually 30 new_epoch
expect eventually 30 open_again "$MOUNT_A"
expect eventually 30 open_again "$MOUNT_B"
expect_is "$tokens" "*,$(attribute lease token),*"
expect_not touch "$MOUNT_B/lease"
expect rm "$MOUNT_A/lease"

it "a clean restart is no new epoch"
before=$(sql 'SELECT stamp FROM leasefs.epoch')
kill -INT "$POSTGRESQL_PID"
expect eventually 30 gone "$POSTGRESQL_PID"
until postgresql_launch; do pause 0.2; done
expect eventually 30 connected "$MOUNT_A"
expect_is "$(sql 'SELECT stamp FROM leasefs.epoch')" "$before"

it "SQL that finds the server closed, and no mount there, opens it when the time is over"
end_actor A
end_actor B
expect unmount "$MOUNT_A"
expect unmount "$MOUNT_B"
end_process "$POSTGRESQL_PID"
until postgresql_launch; do pause 0.2; done
sql_takes() { [[ $(sql "SELECT leasefs.try_lock('by-sql', 'me', '1 s')") =~ ^[0-9]+$ ]]; }
expect_not sql_takes
expect eventually 90 sql_takes

it "locks that a promoted standby does not have are put back with their tokens, and nobody is let in meanwhile"
expect "${postgresql_user[@]}" "$postgresql_programs/pg_basebackup" -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT" -U postgres -c fast -R \
    -D "$POSTGRESQL_SOCKETS/standby"
POSTGRESQL_URI=postgresql://postgres@127.0.0.1:$POSTGRESQL_PORT,127.0.0.1:$POSTGRESQL_STANDBY_PORT/postgres
mount_two ttl=$TTL
on "$MOUNT_B" actor B
actor A
says A 'f = op("late", "RDWR|CREAT"); flock(f, "EX")' ok # the standby is not started yet: it has none of this
expect mkdir "$MOUNT_A/made-late"
expect touch "$MOUNT_A/made-late/lease"
token=$(attribute late token)
end_process "$POSTGRESQL_PID"
rm -f "$POSTGRESQL_SOCKETS/standby/postmaster.pid"
"${postgresql_user[@]}" setpriv --pdeathsig QUIT "$postgresql_programs/postgres" -D "$POSTGRESQL_SOCKETS/standby" \
    -c "port=$POSTGRESQL_STANDBY_PORT" -c "unix_socket_directories=$POSTGRESQL_SOCKETS" -c listen_addresses=127.0.0.1 \
    -c shared_buffers=16MB </dev/null >"$TEST_DIR/standby.log" 2>&1 &
started+=("$!")
POSTGRESQL_PORT=$POSTGRESQL_STANDBY_PORT
expect eventually 60 "$postgresql_programs/pg_isready" -q -h "$POSTGRESQL_SOCKETS" -p "$POSTGRESQL_PORT"
expect_is "$(sql "SELECT count(*) FROM leasefs.ticket WHERE path = 'late' AND id IS NOT NULL")" 0
sql 'SELECT pg_promote()' >/dev/null
expect eventually 60 closed "$MOUNT_A"
says B 'h = op("late", "RDWR|CREAT"); flock(h, "EX|NB")' '@(EAGAIN|ENOLCK)'
expect_not touch "$MOUNT_B/new"
expect logged "$LOG_A" 'grace period: no new lock'
expect eventually 60 open_again "$MOUNT_A"
expect eventually 60 open_again "$MOUNT_B"
expect_is "$(attribute late token)" "$token"
expect test -e "$MOUNT_B/made-late/lease"
expect touch "$MOUNT_B/new"
expect rm "$MOUNT_B/new"
says B 'h = op("late", "RDONLY"); flock(h, "EX|NB")' EAGAIN # the open before may have been refused
says A 'close(f)' ok
says B 'flock(h, "EX|NB")' ok
expect test "$(attribute late token)" -gt "$token"

finish
