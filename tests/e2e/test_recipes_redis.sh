#!/bin/bash
# The recipes once more, with their participants on two mounts of one Redis server.
E2E_STORE=redis exec "$(dirname "$0")/test_recipes.sh"
