#!/bin/bash
# Mounts with wait=1 of a Redis master and two replicas: a lock is believed in only when a replica has it.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=failover.sh
. "$(dirname "$0")/failover.sh"

follows() { redis_cli INFO replication | grep -q '^master_link_status:up'; }
replica() { # ARGUMENT…: of a new server
    redis_start --repl-diskless-sync-delay 0 --replicaof 127.0.0.1 "${redis_ports[0]}" "$@"
    eventually 20 follows || { say "the replica does not follow"; exit 1; }
}
# all STOP|CONT: both replicas.
all() {
    local i
    for i in 1 2; do kill -"$1" "${redis_pids[i]}"; done
}
status() { grep -q "$1" "$MNT/.leasefs/status"; }
# What the server has of locks, but for numbers and directories.
left() { redis_cli --scan | grep -vE '^lfs:[fdglvrms]:'; }
nothing_left() { [ -z "$(left)" ]; }
# A waiter can see that it waits.
waits_for() { grep -qw "$1" "$MOUNT_B/.leasefs/waiters"; }
# It is connected again, and grants what is new.
opened() { status '^state: connected$' && ! grep -q '^grace period' "$MOUNT_A/.leasefs/status" "$MOUNT_B/.leasefs/status"; }
gets_lock() { touch "$MNT/L" 2>/dev/null; }

redis_start --appendonly yes --appendfsync always --repl-diskless-sync-delay 0
replica
replica
redis_use 0
mount_two wait=1,ttl=6s,command_timeout=2s
MNT=$MOUNT_A
actor A
on "$MOUNT_B" actor B

it "a lock that was taken is known to a replica when touch returns, and says how safe it is"
expect touch "$MNT/L"
expect_is "$(redis_use 1; redis_cli EXISTS L)$(redis_use 2; redis_cli EXISTS L)" '*1*'
redis_use 0
expect_is "$(attribute L guarantee)" replicated
expect status '^safety: replicated$'
expect status '^wait: 1 replicas (asked [1-9][0-9]* times, 0 not met)$'
expect_not status '^warning: .*replica'
expect_not on "$MOUNT_B" touch "$MOUNT_B/L"
expect rm "$MNT/L"

it "without a replica that answers nothing is locked, nothing is left of it, and the status says why"
says A 'h = op("held"); flock(h, "EX")' ok
all STOP
expect_not timeout 20 touch "$MNT/L"
says A 'e = op("excl", "RDWR|CREAT|EXCL")' '@(ENOLCK|EIO)'
says A 'f = op("flock", "RDONLY|CREAT")' ok
says A 'flock(f, "EX|NB")' ENOLCK
expect status '^state: away$'
expect status '^reason: 0 replicas have what was written, but wait=1 asks for more$'
expect grep -q 'replicas have what was written, but wait=1 asks for more: nothing is granted until they have' "$LOG_A"
all CONT
expect eventually 20 status '^state: connected$'
says A 'close(f)' ok

it "when one replica of two answers again locks are given again"
all STOP
kill -CONT "${redis_pids[2]}"
expect eventually 20 gets_lock
expect rm "$MNT/L"
all CONT
says A 'close(h)' ok
expect eventually 20 nothing_left

it "what is held outlasts replicas that are away for less than its term, and is lost when they are for longer"
says A 'g = op("kept"); flock(g, "EX")' ok
all STOP
pause 3
all CONT
pause 3.5
expect_is "$(attribute kept state)" held
says B 'w = op("kept")' ok
tell B 'flock(w, "EX")'
expect eventually 10 waits_for kept
all STOP
expect eventually 20 answers A 'get(g, "state")' lost
all CONT
expect_is "$(hear B 20)" ok
says A 'flock(g, "EX|NB")' EAGAIN
says B 'close(w)' ok
says A 'close(g)' ok

it "who is handed a lock by one that lets go has it when a replica knows"
says A 'f = op("handed"); flock(f, "EX")' ok
says B 'g = op("handed")' ok
tell B 'flock(g, "EX")'
expect eventually 10 waits_for handed
all STOP
says A 'flock(f, "UN")' ok
expect_is "$(hear B 2)" TIMEOUT
all CONT
expect_is "$(hear B 20)" ok
says B 'close(g)' ok
says A 'close(f)' ok

it "a mount of a server with fewer replicas than wait= asks for says so, and locks when they are there"
redis_use 0
mount_redis wait=2,ttl=6s,command_timeout=2s
expect_not status '^warning: .*wait'
redis_use 2
redis_kill
redis_use 0
expect eventually 20 eval '[[ $(redis_cli INFO replication) == *connected_slaves:1* ]]'
mount_redis wait=2,ttl=6s,command_timeout=2s
expect grep -q 'the server has 1 replica, fewer than wait=2 asks for: nothing is granted until it has them' "$LOG"
expect status '^warning: the server has 1 replica, fewer than wait=2 asks for'
expect_not timeout 20 touch "$MNT/L"
redis_use 2
redis_again
redis_use 0
expect eventually 20 gets_lock

it "a user of the manual needs +wait besides"
redis_cli ACL SETUSER ann on nopass '~*' '&*' +@all -wait >/dev/null
new_mountpoint
expect_not timeout 20 "$LEASEFS" -o wait=1 "redis://ann@127.0.0.1:$REDIS_PORT" "$MNT" 2>"$TEST_DIR/refused"
expect grep -qF 'run there ACL SETUSER ann +wait (see leasefs-redis(7))' "$TEST_DIR/refused"

it "a holder and who waits for it are carried over a failover"
replicas_start 2
sentinels_start
mount_backend "$SENTINEL_URI" wait=1,ttl=15s
MOUNT_A=$MNT
mount_backend "$SENTINEL_URI" wait=1,ttl=15s
MOUNT_B=$MNT
end_actor A
end_actor B
on "$MOUNT_A" actor A
on "$MOUNT_B" actor B
says A 'f = op("carried"); flock(f, "EX")' ok
says B 'g = op("carried")' ok
tell B 'flock(g, "EX")'
expect eventually 10 waits_for carried
was=$REDIS
redis_kill
expect eventually 30 sentinels_replaced "$was"
MNT=$MOUNT_A
expect eventually 30 opened
says A 'get(f, "state")' held
says A 'flock(f, "UN")' ok
expect_is "$(hear B 20)" ok

finish
