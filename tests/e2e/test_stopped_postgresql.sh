#!/bin/bash
# No call waits longer than the timeout for a PostgreSQL server that stands still: every kind of call.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=stopped.sh
. "$(dirname "$0")/stopped.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"

postgresql_start
mount_backend "$POSTGRESQL_URI" ttl=120

it "every call is answered in time while the server stands still"
mapfile -t servers < <(pgrep -P "$POSTGRESQL_PID")
stopped_calls 5000 "${servers[@]}" # POSTGRESQL_TIMEOUT_DEFAULT

finish
