#!/bin/bash
# Takeovers once more, of a mount of a PostgreSQL server.
E2E_STORE=postgresql TAKEOVERS=${TAKEOVERS:-5} exec "$(dirname "$0")/test_takeover.sh"
