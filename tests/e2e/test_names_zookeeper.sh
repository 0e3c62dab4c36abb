#!/bin/bash
# Names that come and go under the hands of several users, in two mounts of a ZooKeeper server.  The full size is
#
#     E2E_FULL=1 tests/e2e/test_names_zookeeper.sh
#
E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+3000}}
[ -n "$E2E_LIMIT" ] || unset E2E_LIMIT
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"
# shellcheck source=names.sh
. "$(dirname "$0")/names.sh"

zookeeper_start
zookeeper_root names
mount_backend "$ZOOKEEPER_URI" allow_other
names_come_and_go "in one mount of a ZooKeeper server" "$MNT"

zookeeper_root two
mount_two allow_other
names_come_and_go "in two mounts of a ZooKeeper server" "$MOUNT_A" "$MOUNT_B"

finish
