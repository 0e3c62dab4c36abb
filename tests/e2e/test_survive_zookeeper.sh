#!/bin/bash
# Handle locks that outlive their daemon once more, on a ZooKeeper server.
E2E_STORE=zookeeper exec "$(dirname "$0")/test_survive.sh"
