#!/bin/bash
# Locks when a PostgreSQL server loses data: a standby is promoted that does not have the last grants, a server
# crashes that loses nothing, and one that loses the end of its log.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"

connected() { grep -q '^state: connected$' "$1/.leasefs/status"; }
open_again() { ! grep -q '^grace period' "$1/.leasefs/status" && connected "$1"; }
closed() { grep -q '^grace period' "$1/.leasefs/status"; }

TTL=20 # a promotion takes seconds on a loaded machine
postgresql_start
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

it "the guarantee is replicated while the server waits for a synchronous standby, from the start of a mount and when it changes"
mount_two ttl=$TTL
guarantee_is() { [ "$(attribute held guarantee)" = "$1" ]; }
expect touch "$MOUNT_A/held"
expect_is "$(attribute held guarantee)" single
expect standby_start
sql "ALTER SYSTEM SET synchronous_standby_names = '*'" "SELECT pg_reload_conf()" >/dev/null
expect eventually 30 standby_is_synchronous
expect eventually 20 guarantee_is replicated
expect unmount "$MOUNT_B"
expect mount_at "$MOUNT_B" "$POSTGRESQL_URI" ttl=$TTL
expect_is "$(on "$MOUNT_B" attribute held guarantee)" replicated
MNT=$MOUNT_A

it "a standby is refused, with what to write instead"
new_mountpoint
expect_not timeout 20 "$LEASEFS" "postgresql://postgres@127.0.0.1:$STANDBY_PORT/postgres" "$MNT" 2>"$TEST_DIR/standby"
expect grep -q 'hot standby mode: give its primary, or all hosts: postgresql://HOST,HOST/DB$' "$TEST_DIR/standby"
MNT=$MOUNT_A

it "a commit that the standby may lack is not confirmed"
receiver=$(pgrep -P "$STANDBY_PID" -f walreceiver)
kill -STOP "$receiver"
touch "$MOUNT_B/unconfirmed" 2>"$TEST_DIR/refused" &
toucher=$!
waits() { [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")" != 0 ]; }
expect eventually 10 waits
sql "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'" >/dev/null
pause 1
expect_not gone "$toucher"
kill -CONT "$receiver"
expect wait "$toucher"
expect_not touch "$MOUNT_A/unconfirmed"

it "a failover to a synchronous standby loses nothing that was confirmed, and its end of the guarantee is seen"
token=$(attribute held token)
end_process "$POSTGRESQL_PID"
expect standby_promote
expect eventually 60 open_again "$MOUNT_A"
expect eventually 60 open_again "$MOUNT_B"
expect_is "$(attribute held token)" "$token"
expect_not touch "$MOUNT_B/held"
expect eventually 20 guarantee_is single
expect rm "$MOUNT_A/held"
expect unmount "$MOUNT_A"
expect unmount "$MOUNT_B"

it "locks that a promoted standby does not have are put back with their tokens, and nobody is let in meanwhile"
expect standby_start
POSTGRESQL_URI=postgresql://postgres@127.0.0.1:$POSTGRESQL_PORT,127.0.0.1:$STANDBY_PORT/postgres
mount_two ttl=$TTL
on "$MOUNT_B" actor B
actor A
expect standby_detach
says A 'f = op("late", "RDWR|CREAT"); flock(f, "EX")' ok
expect mkdir "$MOUNT_A/made-late"
expect touch "$MOUNT_A/made-late/lease"
token=$(attribute late token)
end_process "$POSTGRESQL_PID"
POSTGRESQL_PORT=$STANDBY_PORT
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
