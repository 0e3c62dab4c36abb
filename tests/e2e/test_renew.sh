#!/bin/bash
# Renewals of many leases go to Redis servers in batches, and a lease that is lost in a batch is lost alone.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

LEASES=1000 TTL=6 # seconds; so each lease is renewed every two
PREFIX=

scripts() {
    local line
    line=$(redis_cli INFO commandstats | tr -d '\r' | grep -F cmdstat_evalsha:)
    line=${line#*calls=}
    echo "${line%%,*}"
}
extended() { # of the leases, those whose key has nearly a whole term left
    redis_cli EVAL "local n = 0
        for i = 0, $LEASES - 1 do if redis.call('PTTL', '${PREFIX}l' .. i) > $TTL * 1000 * 0.6 then n = n + 1 end end return n" 0
}
held() { find "$MNT" -maxdepth 1 -type f -name 'l[0-9]*' | wc -l; }

# MOST: scripts on the server in ten seconds.
tests() { # STORE MOST
    local store=$1 most=$2 before
    it "$store: a thousand leases of one mount are renewed by few scripts"
    actor A
    ASK_LIMIT=200 says A "[acquire('l%d' % i) for i in range($LEASES)] and None" ok
    pause 4 # the owners are settled, and all have been renewed
    before=$(scripts)
    pause 10 # five renewals of each
    expect_between 5 $(($(scripts) - before)) "$most" scripts
    expect_is "$(extended)" "$LEASES" "leases whose term is fresh"

    it "$store: a lease that the server has lost, and one that another client has taken, are lost alone"
    each_server redis_cli DEL "${PREFIX}l10" "${PREFIX}l500"
    each_server redis_cli SET "${PREFIX}l700" stranger
    expect eventually $((TTL + 2)) absent l10
    expect eventually 2 absent l500
    expect eventually 2 grep -q '^leasefs.*l700: the lock of .* (pid .*) was lost' "$LOG"
    expect_not grep -q '^leasefs.* l[0-9]*: .*expired' "$LOG"
    pause $TTL
    expect_is "$(held)" $((LEASES - 2)) "names" # the other client's is one of them
    expect_is "$(grep -c ': the lock of .* (pid .*) was lost' "$LOG")" 3 "lines in the log"

    it "$store: a lease that is released, or broken, while others are renewed stays so"
    says A "[rm('l%d' % i) for i in range(0, 100) if i != 10] and None" ok
    pause 3
    expect_is "$(held)" $((LEASES - 101)) "names"
    end_actor A
}

each_server() {
    local server
    for server in "${!redis_ports[@]}"; do
        redis_use "$server"
        "$@" >/dev/null
    done
}

redis_start --appendonly yes --appendfsync always
mount_redis ttl=$TTL
tests Redis 200

servers=redlock://127.0.0.1:${redis_ports[0]}
for _ in 1 2; do
    redis_start --appendonly yes --appendfsync always # so that its votes count at once
    servers+=,127.0.0.1:$REDIS_PORT
done
redis_use 0
mount_backend "$servers" "ttl=$TTL,prefix=r:"
PREFIX=r:
tests Redlock 200

it "Redlock: a server that has lost a lease gets it again"
actor B
says B '[acquire("m%d" % i) for i in range(100)] and None' ok
pause 3
redis_cli DEL r:m50 >/dev/null
expect eventually $TTL redis_key r:m50
pause $TTL
expect exists m50
finish
