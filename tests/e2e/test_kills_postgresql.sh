#!/bin/bash
# A lock in PostgreSQL outlives its daemon if the next one comes within its term: as test_kills.sh, which also has the
# environment.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
# shellcheck source=kills.sh
. "$(dirname "$0")/kills.sh"

postgresql_start

it "no lock in PostgreSQL ends with its daemon"
expect kills "$POSTGRESQL_URI" 10000 --kills "${E2E_KILLS:-15}" --kinds "$KINDS"

finish
