#!/bin/bash
# Takeovers once more, of a mount of three Redis servers that know nothing of each other.
E2E_STORE=redlock TAKEOVERS=${TAKEOVERS:-5} exec "$(dirname "$0")/test_takeover.sh"
