#!/bin/bash
# Handle locks that outlive their daemon once more, on a PostgreSQL server.
E2E_STORE=postgresql exec "$(dirname "$0")/test_survive.sh"
