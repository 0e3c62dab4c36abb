#!/bin/bash
# Takeovers once more, of a mount of a Redis server.
E2E_STORE=redis TAKEOVERS=${TAKEOVERS:-5} exec "$(dirname "$0")/test_takeover.sh"
