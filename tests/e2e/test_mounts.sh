#!/bin/bash
# leaserun --mounts: which mounts a store knows, on each kind of store.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"

version=$("$LEASEFS" --version | awk '{ print $2; exit }')
host=$(hostname)

lines() { run --mounts "$1" && expect_is "$STATUS" 0 && tail -n +2 "$OUT"; }
knows() { [ "$(lines "$1" | grep -cE "^$host +$version +[0-9]+\.[0-9]{3}\$")" = "$2" ]; } # DIRECTORY NUMBER

# Two mounts of one store.
two_mounts() { # URI [OPTIONS]
    mount_backend "$1" "${2:-}"
    first=$MNT
    expect eventually 10 knows "$first" 1
    mount_backend "$1" "${2:-}"
    expect eventually 10 knows "$first" 2
    expect eventually 10 knows "$MNT" 2
    mkdir -p "$MNT/directory"
    expect knows "$MNT/directory" 2
    run --mounts --json "$first"
    expect_is "$("$PYTHON" -c 'import json, sys
for mount in json.load(open(sys.argv[1])):
    print(mount["host"], mount["version"], 0 <= mount["seconds"] < 200)' "$OUT")" "$host $version True
$host $version True"
    expect rmdir "$MNT/directory"
    unmount "$MNT"
    expect eventually "${LEAVES:-10}" knows "$first" 1
    unmount "$first"
}

it "a local store and one in memory have this mount only"
mount_backend memory
expect knows "$MNT" 1
unmount "$MNT"
mount_backend "local:$TEST_DIR/store"
expect knows "$MNT" 1
gives 66 --mounts "$TEST_DIR"
said 'no directory of a leasefs'
gives 66 --mounts "$MNT/none"
gives 64 --mounts
gives 64 --json --mounts
unmount "$MNT"

it "Redis"
# shellcheck source=redis.sh
. "$E2E_DIR/redis.sh"
redis_start
two_mounts "$REDIS_URI"

it "several Redis servers"
for _ in 1 2; do redis_start; done
two_mounts "redlock://127.0.0.1:${redis_ports[0]},127.0.0.1:${redis_ports[1]},127.0.0.1:${redis_ports[2]}"

if command -v java >/dev/null && "$LEASEFS" --help | grep -q zookeeper:; then
    it "ZooKeeper"
    # shellcheck source=zookeeper.sh
    . "$E2E_DIR/zookeeper.sh"
    zookeeper_start
    zookeeper_root mounts
    for i in 1 2; do mkdir -m 700 "$TEST_DIR/state.$i"; done
    two_mounts "$ZOOKEEPER_URI" ttl=5
else
    left_out ZooKeeper "with java, and a leasefs that has ZooKeeper"
fi

if compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
    it "PostgreSQL"
    # shellcheck source=postgresql.sh
    . "$E2E_DIR/postgresql.sh"
    postgresql_start
    LEAVES=45 two_mounts "$POSTGRESQL_URI" # it is known for 35 s that a mount is there
    it "PostgreSQL with a schema that an earlier version has made"
    mount_backend "$POSTGRESQL_URI"
    unmount "$MNT"
    sql 'DROP FUNCTION leasefs.mounts; DROP FUNCTION leasefs.note_mount' >/dev/null
    mount_backend "$POSTGRESQL_URI"
    expect touch "$MNT/kept"
    expect knows "$MNT" 1
    expect grep -q "warning: .*leasefs.note_mount.* does not exist" "$LOG"
    expect rm "$MNT/kept"
fi
finish
