#!/bin/bash
# leaserun over restarts of its daemon once more, on a Redis server.
E2E_STORE=redis exec "$(dirname "$0")/test_leaserun_restart.sh"
