#!/bin/bash
# Handle locks that outlive their daemon once more, on a Redis server.
E2E_STORE=redis exec "$(dirname "$0")/test_survive.sh"
