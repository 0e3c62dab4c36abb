#!/bin/bash
# The lease of a process that was killed ends after its term, also while the connection of its mount is reset again and again.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=postgresql.sh
. "$(dirname "$0")/postgresql.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"

term=5

# resets PORT: a proxy that resets its connections every second.  PROXY: its port.
resets() {
    start python3 -c '
import os, select, socket, struct, sys, time
listener, pairs, cut = socket.create_server(("127.0.0.1", 0)), {}, time.monotonic() + 1
with open(sys.argv[2] + ".new", "w") as f:
    f.write(str(listener.getsockname()[1]))
os.rename(sys.argv[2] + ".new", sys.argv[2])
while True:
    for ready in select.select([listener, *pairs], [], [], 0.1)[0]:
        try:
            if ready is listener:
                here = listener.accept()[0]
                there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
                pairs[here], pairs[there] = there, here
            elif ready in pairs:
                pairs[ready].sendall(ready.recv(65536))
        except OSError:
            pass
    if time.monotonic() >= cut:
        for each in pairs:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        pairs, cut = {}, time.monotonic() + 1
' "$1" "$TEST_DIR/proxy.$1"
    eventually 5 test -e "$TEST_DIR/proxy.$1"
    PROXY=$(cat "$TEST_DIR/proxy.$1")
}

# ends_in_time: a process takes a lease, lives on past the first second, and is killed.
ends_in_time() {
    local holder begun
    start python3 -c "import time; open('$MNT/lease', 'x'); time.sleep(100)"
    holder=$STARTED
    expect eventually 5 exists lease
    pause 1.5
    now
    begun=$NOW
    end_process "$holder"
    expect eventually 30 absent lease
    now
    expect_between 0 $((NOW - begun)) $((term * 1000 + 2500))
    say "$((NOW - begun)) ms"
    unmount "$MNT"
}

it "Redis that closes idle connections itself"
redis_start --timeout 2
mount_backend "$REDIS_URI" ttl=$term
ends_in_time

it "Redis, and connections that are reset every second"
redis_start
resets "$REDIS_PORT"
mount_backend "redis://127.0.0.1:$PROXY" ttl=$term
ends_in_time

it "the same with PostgreSQL"
postgresql_start
resets "$POSTGRESQL_PORT"
mount_backend "postgresql://postgres@127.0.0.1:$PROXY/postgres" ttl=$term
ends_in_time

it "the same with ZooKeeper"
zookeeper_start
resets "$ZOOKEEPER_PORT"
mount_backend "zookeeper://127.0.0.1:$PROXY/reset" ttl=$term
ends_in_time

finish
