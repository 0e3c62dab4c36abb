#!/bin/bash
# No call waits longer than the timeout for a ZooKeeper server that stands still: every kind of call.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=stopped.sh
. "$(dirname "$0")/stopped.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"

zookeeper_start
zookeeper_root stopped
mount_backend "$ZOOKEEPER_URI" ttl=120

it "every call is answered in time while the server stands still"
stopped_calls 5000 "$ZOOKEEPER_PID" # ZOOKEEPER_TIMEOUT

finish
