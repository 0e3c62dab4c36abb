#!/bin/bash
# A Redis that fails over, under two mounts: whatever is held or waited for is carried over, and nobody else is granted it
# meanwhile.  Real servers and Sentinels; a master is killed, stands still and comes back, and gives way when it is asked to.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=failover.sh
. "$(dirname "$0")/failover.sh"

TTL=3000 # milliseconds of every lease here: a failover takes half of that
OPTIONS=ttl=${TTL}ms,timeout=2s,command_timeout=500ms,connect_timeout=500ms

leasefs_fails() { # PATTERN URI [OPTIONS]: it does not mount, in time, and says why in one line
    local point=$TEST_DIR/nowhere began said status=0
    mkdir -p "$point"
    now
    began=$NOW
    said=$(timeout -s KILL 30 "$LEASEFS" -o "$OPTIONS${3:+,$3}" "$2" "$point" 2>&1) || status=$?
    now
    expect_is "$status" 1 "exit status"
    expect_is "$said" "$1" "the error"
    expect_is "$(grep -c . <<<"$said")" 1 "lines of the error"
    expect [ $((NOW - began)) -le $((4000 + SLACK)) ]
}

held() { [ "$(ask "$1" "get($2, \"state\")")" = held ]; } # ACTOR HANDLE
# MOUNTPOINT NUMBER: that server is what it uses.
uses() { timeout -s KILL 10 grep -qx "master: .*:${redis_ports[$2]}" "$1/.leasefs/status"; }
used_by() { # MOUNTPOINT: the number of its server
    local i
    for i in "${!redis_ports[@]}"; do uses "$1" "$i" && echo "$i"; done
}
both_left() { ! uses "$MOUNT_A" "$1" && ! uses "$MOUNT_B" "$1" && both_connected; } # NUMBER
both_connected() {
    timeout -s KILL 10 grep -qx "state: connected" "$MOUNT_A/.leasefs/status" &&
        timeout -s KILL 10 grep -qx "state: connected" "$MOUNT_B/.leasefs/status"
}

mount_both() { # URI [OPTIONS]
    mount_backend "$1" "$OPTIONS${2:+,$2}" && MOUNT_B=$MNT LOG_B=$LOG
    mount_backend "$1" "$OPTIONS${2:+,$2}" && MOUNT_A=$MNT LOG_A=$LOG
    on "$MOUNT_A" actor A
    on "$MOUNT_A" actor A2
    on "$MOUNT_B" actor B
    on "$MOUNT_B" actor B2
    MNT=$MOUNT_A
}

# A holds a lease, a lock of a handle and the first ticket of a queue, on which B2 waits; B waits for the lock.
take_all() {
    says A 'f = op("lease", "RDWR|CREAT|EXCL"); write(f, "text")' ok
    says A 'g = op("flock", "RDWR|CREAT"); flock(g, "EX")' ok
    says B 'g = op("flock", "RDWR|CREAT")' ok
    tell B 'flock(g, "EX")'
    says A2 't = op("queue/x-", "RDWR|CREAT"); flock(t, "EX")' ok
    says B2 't = op("queue/x-", "RDWR|CREAT")' ok
    tell B2 'flock(t, "EX")'
    expect eventually 5 waiters flock 1
    token=$(attribute lease token)
    flock_token=$(ask A 'get(g, "token")')
}

# Through a failover: all is held, by whom it was, with its tokens; who waits waits.
still_held() {
    held A f && held A g && held A2 t && quiet B && quiet B2
}
none_for_others() { # from the other mount, with the lease asked for again and again
    [[ $(on "$MOUNT_B" timeout -s KILL 20 touch "$MOUNT_B/lease" 2>&1) ]] && still_held
}

give_all() {
    expect_is "$(ask A 'read(f)')" text
    expect_is "$(attribute lease token)" "$token"
    expect_is "$(ask A 'get(g, "token")')" "$flock_token"
    says A 'flock(g, "UN")' ok
    expect_is "$(hear B 15)" ok
    expect [ "$(ask B 'get(g, "token")')" -gt "$flock_token" ]
    says A2 'close(t)' ok
    expect_is "$(hear B2 15)" ok
    says A 'rm("lease")' ok
    expect eventually 15 on "$MOUNT_B" touch "$MOUNT_B/lease"
    rm "$MOUNT_B/lease"
    says A 'close(f)' ok
    says A 'close(g)' ok
    says B 'close(g)' ok
    says B2 'close(t)' ok
}

# --- Sentinels ---

replicas_start 2
first=$REDIS
sentinels_start
LIST=${SENTINEL_URI#*//}
LIST=${LIST%/*}

it "what is wrong is told when mounting: another name, no Sentinels, a server that is none"
leasefs_fails "*127.0.0.1:${sentinel_ports[0]}: it knows no master 'other'; *" "redis+sentinel://$LIST/other"
leasefs_fails "*the Sentinel 127.0.0.1:1: Connection refused; the Sentinel [[]::1]:1: *option background*" \
    "redis+sentinel://127.0.0.1:1,[::1]:1/locks"
leasefs_fails "*the Sentinel 127.0.0.1:$REDIS_PORT: the server is no Sentinel;*" "redis+sentinel://127.0.0.1:$REDIS_PORT/locks"
leasefs_fails "*the server is a Sentinel, which keeps no keys: mount redis+sentinel://*" "redis://127.0.0.1:${sentinel_ports[0]}"

it "one Sentinel that can be reached is enough, whichever it is; one that stands still costs half a second"
kill -STOP "${sentinel_pids[0]}"
mount_backend "redis+sentinel://127.0.0.1:1,$LIST/locks" "$OPTIONS"
kill -CONT "${sentinel_pids[0]}"
expect uses "$MNT" "$first"
expect unmount "$MNT"

it "a Sentinel that asks for a password gets its own, of a user who may no more than the manual says"
sentinel_cli 0 ACL SETUSER watcher on '>low' '+sentinel|get-master-addr-by-name' +subscribe '&+switch-master' >/dev/null
sentinel_cli 0 ACL SETUSER default resetpass '>high' >/dev/null
one_sentinel=redis+sentinel://${LIST%%,*}/$SENTINEL_NAME credentials=$TEST_DIR/credentials
leasefs_fails "*requires a password: put it in a file with mode 0600 and mount with -o sentinel_credentials=FILE;*" "$one_sentinel"
install -m 600 /dev/stdin "$credentials" <<<watcher:wrong
leasefs_fails "*the server refuses this password: correct or leave out sentinel_credentials=;*" "$one_sentinel" "sentinel_credentials=$credentials"
install -m 600 /dev/stdin "$credentials" <<<watcher:low
mount_backend "$one_sentinel" "$OPTIONS,sentinel_credentials=$credentials"
expect uses "$MNT" "$first"
expect_re "$(REDISCLI_AUTH=high sentinel_cli 0 CLIENT LIST)" ' sub=1 [^[:cntrl:]]* user=watcher '
expect unmount "$MNT"
REDISCLI_AUTH=high sentinel_cli 0 ACL SETUSER default nopass >/dev/null

it "the mount names the master, and says at once and in its status what a failover may lose; with wait= it does not"
mount_both "$SENTINEL_URI"
expect uses "$MOUNT_A" "$first"
expect grep -q 'a failover may lose locks .*wait=1$' "$LOG_A"
expect grep -q '^warning: a failover may lose locks .*wait=1$' "$MOUNT_A/.leasefs/status"
mount_backend "$SENTINEL_URI" "$OPTIONS,wait=1"
expect_not grep -q 'a failover may lose' "$LOG"
expect unmount "$MNT"
MNT=$MOUNT_A
mkdir "$MNT/queue"

it "the master is killed: all is carried over to the next, and nobody gets any of it"
take_all
redis_use "$first"
redis_kill
expect eventually 15 both_left "$first"
expect constantly $((2 * TTL)) none_for_others
expect grep -q "grace period: no new lock for [0-9]* s, the server lost data" "$LOG_A" # it may not have heard of all
give_all

it "it comes back as a replica, and nobody uses it; another failover, by hand, is noticed as soon"
redis_again
second=$(used_by "$MNT")
expect eventually 20 replica_follows
take_all
expect eventually 20 eval '[ "$(sentinel_cli 0 SENTINEL FAILOVER $SENTINEL_NAME 2>&1)" = OK ]'
expect eventually 20 both_left "$second"
expect constantly $((2 * TTL)) none_for_others
give_all

it "the master stands still for longer than a failover takes: all is carried over, and its return changes nothing"
third=$(used_by "$MNT")
redis_use "$third"
says A 'f = op("lease", "RDWR|CREAT|EXCL")' ok # B's mount has nothing to do meanwhile
end_actor A2
redis_pause
expect eventually 20 both_left "$third"
expect eventually 15 held A f
redis_resume
# its own copy of the lock runs out, and it believes to be a master for some seconds
expect constantly $((2 * TTL)) eval '[ "$(on "$MOUNT_B" ask B "acquire(\"lease\")")" = EEXIST ] && held A f'
says A 'rm("lease")' ok
says A 'close(f)' ok

it "no Sentinel is needed by a mount that is connected"
for i in 0 1 2; do end_process "${sentinel_pids[i]}"; done
expect constantly 3000 eval '[ "$(ask B "acquire(\"alone\")")" = ok ] && [ "$(ask B "rm(\"alone\")")" = ok ]'
expect grep -qx "state: connected" "$MOUNT_B/.leasefs/status"

it "-o background waits for Sentinels, too"
mount_backend "$SENTINEL_URI" "$OPTIONS,background"
actor C
says C 'acquire("early")' '@(ENOLCK|EIO)'
for i in 0 1 2; do expect sentinel_launch "$i"; done
expect eventually 15 answers C 'acquire("early")' ok
says C 'rm("early")' ok
for name in C A B B2; do end_actor $name; done

# --- a Cluster ---

TTL=20000 # its failover, and the move of a slot, take longer than a short term
OPTIONS=${OPTIONS/#ttl=*ms,timeout/ttl=${TTL}ms,timeout}
cluster_start 3 1
LIST=${CLUSTER_URI%%/\?*}

it "what cannot be in a Cluster is refused, with what to do: no tag, a server that is in none, redis:// to a node"
leasefs_fails "*has no {TAG}: *one hash slot*write redis+cluster://HOST,HOST,HOST/[?]prefix={TAG}; *several mounts*" "$LIST"
leasefs_fails "*has no {TAG}: *" "$LIST/?prefix=a{}b"
leasefs_fails "*has no {TAG}: *" "$LIST" "prefix=a}{b,background"
leasefs_fails "*give it once*" "$CLUSTER_URI" "prefix={a}"
leasefs_fails "*the server belongs to no Cluster: mount redis://HOST*" "redis+cluster://127.0.0.1:${redis_ports[third]}/?prefix={a}"
leasefs_fails "*it belongs to a Redis Cluster: mount redis+cluster://*" "redis://127.0.0.1:$REDIS_PORT"

it "a mount finds the node of its slot whichever it is told of, and all of its keys are there"
mount_backend "redis+cluster://127.0.0.1:1,127.0.0.1:${redis_ports[${NODES[2]}]}" "$OPTIONS,prefix=$CLUSTER_TAG"
expect uses "$MNT" "${NODES[0]}"
expect touch "$MNT/somewhere"
expect redis_key "${CLUSTER_TAG}somewhere"
expect unmount "$MNT"
mount_both "$CLUSTER_URI"
expect uses "$MNT" "${NODES[0]}"
expect grep -q 'a failover may lose locks ' "$LOG_A"
expect mkdir -p "$MNT/queue" "$MNT/dir/dir"
expect touch "$MNT/dir/a"
expect mv -n "$MNT/dir/a" "$MNT/dir/b"
expect_is "$(on "$MOUNT_B" ls "$MOUNT_B/dir" | paste -sd ' ')" 'b dir'
expect rm "$MNT/dir/b"
expect rmdir "$MNT/dir/dir"
take_all
give_all
slot=$(redis_cli CLUSTER KEYSLOT "$CLUSTER_TAG")
expect_is "$(redis_cli CLUSTER COUNTKEYSINSLOT "$slot")" "$(redis_cli DBSIZE)"

it "the master of the slot is killed: all is carried over to its replica, and nobody gets any of it"
take_all
redis_kill
expect eventually 20 both_left "${NODES[0]}"
expect uses "$MNT" "${NODES[3]}"
expect constantly $((TTL + 2000)) none_for_others
give_all

it "the slot is moved to another master: requests wait meanwhile, and all is carried over"
take_all
NODES=("${NODES[@]:1}")
redis_use "${NODES[2]}"
expect_refused_meanwhile() { expect_not on "$MOUNT_B" timeout -s KILL 20 touch "$MOUNT_B/lease" 2>/dev/null; }
cluster_move "${NODES[0]}" expect_refused_meanwhile
expect eventually 10 both_left "${NODES[2]}"
expect uses "$MNT" "${NODES[0]}"
expect constantly $((TTL + 2000)) none_for_others
give_all

finish
