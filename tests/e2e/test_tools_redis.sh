#!/bin/bash
# The lock tools once more, the two contenders of each on two mounts of one Redis server.
E2E_STORE=redis exec "$(dirname "$0")/test_tools.sh" "$@"
