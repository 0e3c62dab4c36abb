#!/bin/bash
# Names that come and go under the hands of several users, on one machine.  The full size is
#
#     E2E_FULL=1 tests/e2e/test_names.sh
#
E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+3000}}
[ -n "$E2E_LIMIT" ] || unset E2E_LIMIT
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=names.sh
. "$(dirname "$0")/names.sh"

mount_backend memory allow_other
names_come_and_go "in memory" "$MNT"

mount_backend memory allow_other,lockmode=0666
names_come_and_go "in memory, with lockmode=" --lockmode 0666 "$MNT"

mount_backend "local:$TEST_DIR/store" allow_other
names_come_and_go "in a local store" "$MNT"

mount_backend memory
NAMES_USERS=()
names_come_and_go "in a mount of one user" "$MNT"

finish
