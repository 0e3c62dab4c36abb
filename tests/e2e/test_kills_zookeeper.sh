#!/bin/bash
# A lock on ZooKeeper outlives its daemon if the next one comes within its term: as test_kills.sh, which also has the
# environment.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"
# shellcheck source=kills.sh
. "$(dirname "$0")/kills.sh"

zookeeper_start
zookeeper_root locks
KILLS_OPTIONS=state=$TEST_DIR/state

it "no lock on ZooKeeper ends with its daemon"
expect kills "$ZOOKEEPER_URI" 10000 --kills "${E2E_KILLS:-15}" --kinds "$KINDS"

finish
