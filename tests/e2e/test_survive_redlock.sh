#!/bin/bash
# Handle locks that outlive their daemon once more, on three Redis servers that know nothing of each other.
E2E_STORE=redlock exec "$(dirname "$0")/test_survive.sh"
