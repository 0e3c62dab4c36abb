#!/bin/bash
# Runs tests that are written for redis-server with the simulator's redis_model_server instead: make coverage counts the
# lines of the Lua scripts in this way (LUA_LINES).  check_redis_like compares the two servers.
set -u
cd "${top_builddir:-.}"
export REDIS_SERVER=$PWD/tests/sim/redis_model_server
export CK_EXCLUDE_TAGS=faults # it cannot be stopped and started again: it saves nothing
number=0
failed=0

run() { # PROGRAM [CASE]
    number=$((number + 1))
    if said=$(env ${2:+"CK_RUN_CASE=$2"} "tests/$1" 2>&1) && grep -q '^ok' <<<"$said"; then
        echo "ok $number - $1 ${2-}"
    else
        echo "not ok $number - $1 ${2-}"
        grep -v '^ok' <<<"$said" | sed 's/^/# /'
        failed=1
    fi
}

run contract/contract_redis
run contract/contract_redlock name
run unit/check_redis_bounds mounts
run unit/check_redis_check probe
run unit/check_redis_foreign administrator
run unit/check_redis_forged
run unit/check_redis_grace away
run unit/check_redis_places places
run unit/check_redlock mounted
echo "1..$number"
exit $failed
