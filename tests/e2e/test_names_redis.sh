#!/bin/bash
# Names that come and go under the hands of several users, in two mounts of one Redis server, and of three.  The full
# size is
#
#     E2E_FULL=1 tests/e2e/test_names_redis.sh
#
E2E_LIMIT=${E2E_LIMIT:-${E2E_FULL:+3000}}
[ -n "$E2E_LIMIT" ] || unset E2E_LIMIT
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=names.sh
. "$(dirname "$0")/names.sh"

redis_start
mount_redis allow_other
names_come_and_go "in one mount of a Redis server" "$MNT"

mount_redis allow_other && MOUNT_A=$MNT
mount_redis allow_other
names_come_and_go "in two mounts of a Redis server" "$MOUNT_A" "$MNT"

for _ in 1 2 3; do redis_start; done
SERVERS=redlock://127.0.0.1:${redis_ports[1]},127.0.0.1:${redis_ports[2]},127.0.0.1:${redis_ports[3]}
votes() { [ "$(grep -c '^server: .* votes$' "$MNT/.leasefs/status")" = 3 ]; }
mount_backend "$SERVERS" ttl=3,allow_other && MOUNT_A=$MNT
eventually 20 votes
names_come_and_go "in one mount of three Redis servers" "$MNT"

mount_backend "$SERVERS" ttl=3,allow_other
eventually 20 votes
names_come_and_go "in two mounts of three Redis servers" "$MOUNT_A" "$MNT"

finish
