#!/bin/bash
# Takeovers once more, of a mount of a ZooKeeper server.
E2E_STORE=zookeeper TAKEOVERS=${TAKEOVERS:-5} exec "$(dirname "$0")/test_takeover.sh"
