#!/bin/bash
# No call waits longer than the timeout for a PostgreSQL server that stands still: every kind of call.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"

TIMEOUT=5000 # ms
postgresql_start
mount_backend "$POSTGRESQL_URI" ttl=120

it "every call is answered in time while the server stands still"
mkfifo "$TEST_DIR/go"
"$PYTHON" "$(dirname "$0")/stopped.py" "$MNT" $(((TIMEOUT + SLACK) / 1000)).$(((TIMEOUT + SLACK) % 1000)) <"$TEST_DIR/go" >"$TEST_DIR/answers" 2>&1 &
calls=$!
exec 6>"$TEST_DIR/go"
expect eventually 60 grep -q ready "$TEST_DIR/answers"
mapfile -t servers < <(pgrep -P "$POSTGRESQL_PID")
kill -STOP "${servers[@]}"
echo go >&6
expect wait "$calls"
kill -CONT "${servers[@]}"
exec 6>&-
sed 's/^/# /' "$TEST_DIR/answers"

finish
