# shellcheck shell=bash
# failover.sh: Redis servers that take over from each other.  Sourced after redis.sh:
#
#     replicas_start 2           # a master and two replicas of it
#     sentinels_start            # three Sentinels that watch them
#     redis_use "$(sentinel_master)"; redis_kill
#     eventually 20 sentinels_replaced "$REDIS"
#
# The servers are those of redis.sh, with their numbers: replicas_start turns to the master.  The Sentinels are known by
# their numbers, 0 to 2; each has a port of 127.0.0.1 and ends with the test.  Known of them:
#   SENTINEL_URI (of all three)  sentinel_ports  sentinel_pids
#
# A Cluster is made of servers of redis.sh, too:
#
#     cluster_start 3 1          # three masters, and a replica of the one that has the slot of CLUSTER_TAG
#     node 4 redis_cli CLUSTER MYID

SENTINEL_NAME=locks
SENTINEL_URI=
declare -a sentinel_ports=() sentinel_pids=()

# replicas_start COUNT [ARGUMENT…]: REPLICAS has the numbers of the replicas.
replicas_start() {
    local count=$1 master i
    shift
    redis_start --repl-diskless-sync-delay 0 --repl-ping-replica-period 1 "$@"
    master=$REDIS
    REPLICAS=()
    for ((i = 0; i < count; i++)); do
        redis_start --repl-diskless-sync-delay 0 --repl-ping-replica-period 1 "$@" \
            --replicaof 127.0.0.1 "${redis_ports[master]}"
        REPLICAS+=("$REDIS")
        eventually 20 replica_follows || { say "the replica does not follow"; exit 1; }
    done
    redis_use "$master"
}
replica_follows() { redis_cli INFO replication | grep -q '^master_link_status:up'; }

# sentinels_start [LINE…]: these lines are in the configuration of each; a master is given up after half a second.
sentinels_start() {
    local i tries
    for i in 0 1 2; do
        mkdir "$TEST_DIR/sentinel.$i"
        for tries in {1..20}; do
            sentinel_ports[i]=$((20000 + SRANDOM % 12000))
            printf '%s\n' "bind 127.0.0.1" "port ${sentinel_ports[i]}" "dir $TEST_DIR/sentinel.$i" \
                "logfile $TEST_DIR/sentinel.$i/log" "sentinel monitor $SENTINEL_NAME 127.0.0.1 $REDIS_PORT 2" \
                "sentinel down-after-milliseconds $SENTINEL_NAME 500" \
                "sentinel failover-timeout $SENTINEL_NAME 2000" "$@" >"$TEST_DIR/sentinel.$i/conf"
            sentinel_launch "$i" && continue 2
        done
        say "a Sentinel did not come up after $tries tries:"
        sed 's/^/# /' "$TEST_DIR/sentinel.$i/log"
        exit 1
    done
    # shellcheck disable=SC2034 # for the tests
    printf -v SENTINEL_URI ',127.0.0.1:%s' "${sentinel_ports[@]}"
    SENTINEL_URI=redis+sentinel://${SENTINEL_URI#,}/$SENTINEL_NAME
    eventually 20 sentinels_know_all || { say "the Sentinels do not find each other"; exit 1; }
}

sentinel_launch() { # NUMBER
    setpriv --pdeathsig KILL redis-server "$TEST_DIR/sentinel.$1/conf" --sentinel </dev/null >/dev/null 2>&1 &
    sentinel_pids[$1]=$!
    started+=("$!")
    eventually 20 sentinel_up_or_ended "$1" && ! gone "${sentinel_pids[$1]}"
}
sentinel_up_or_ended() { gone "${sentinel_pids[$1]}" || [[ $(sentinel_cli "$1" PING 2>&1) == @(PONG|NOAUTH*) ]]; }

sentinel_cli() { # NUMBER ARGUMENT…
    timeout 20 redis-cli -p "${sentinel_ports[$1]}" "${@:2}"
}

# Each knows the other two, and all replicas.
sentinels_know_all() {
    local i
    for i in 0 1 2; do
        [[ $(sentinel_cli "$i" SENTINEL CKQUORUM "$SENTINEL_NAME") == "OK 3 usable"* ]] || return
        [ "$(sentinel_cli "$i" SENTINEL REPLICAS "$SENTINEL_NAME" | grep -c '^slave-priority$')" = ${#REPLICAS[@]} ] || return
    done
}

# sentinel_master [NUMBER]: which server that Sentinel names, by its number in redis.sh.
sentinel_master() {
    local i port
    port=$(sentinel_cli "${1:-0}" SENTINEL GET-MASTER-ADDR-BY-NAME "$SENTINEL_NAME" | tail -n 1)
    for i in "${!redis_ports[@]}"; do
        [ "${redis_ports[i]}" = "$port" ] && echo "$i"
    done
}

# sentinels_replaced NUMBER: all of them that answer name another server than that, which is a master.
sentinels_replaced() {
    local i named
    for i in 0 1 2; do
        gone "${sentinel_pids[i]}" && continue
        named=$(sentinel_master "$i")
        [ -n "$named" ] && [ "$named" != "$1" ] || return
        [[ $(redis-cli -p "${redis_ports[named]}" ROLE | head -n 1) == master ]] || return
    done
}

# --- a Cluster ---

CLUSTER_TAG={locks}
declare -a cluster_buses=()

# cluster_start MASTERS REPLICAS: the masters have equal parts of the slots.  NODES has the numbers of all, masters first, and
# the first is the one with the slot of CLUSTER_TAG; it is turned to.  CLUSTER_URI names all of them.
cluster_start() {
    local masters=$1 replicas=$2 list='' owner id i
    NODES=()
    for ((i = 0; i < masters + replicas; i++)); do
        cluster_buses[${#redis_ports[@]}]=$((20000 + SRANDOM % 12000))
        redis_start --cluster-enabled yes --cluster-port "${cluster_buses[-1]}" --cluster-node-timeout 1000 \
            --cluster-config-file nodes.conf --repl-diskless-sync-delay 0 --repl-ping-replica-period 1
        NODES+=("$REDIS")
        list+=,127.0.0.1:$REDIS_PORT
    done
    # shellcheck disable=SC2034 # for the tests
    CLUSTER_URI=redis+cluster://${list#,}/?prefix=$CLUSTER_TAG
    for ((i = 0; i < masters; i++)); do
        node "${NODES[i]}" redis_cli CLUSTER ADDSLOTSRANGE $((16384 * i / masters)) $((16384 * (i + 1) / masters - 1)) >/dev/null
        node "${NODES[i]}" redis_cli CLUSTER SET-CONFIG-EPOCH $((i + 1)) >/dev/null
    done
    for i in "${NODES[@]:1}"; do
        node "${NODES[0]}" redis_cli CLUSTER MEET 127.0.0.1 "${redis_ports[i]}" "${cluster_buses[i]}" >/dev/null
    done
    eventually 20 cluster_is_whole || { say "the nodes do not find each other"; exit 1; }
    owner=$(cluster_owner)
    id=$(node "$owner" redis_cli CLUSTER MYID)
    for i in "${!NODES[@]}"; do
        [ "${NODES[i]}" != "$owner" ] || NODES[i]=${NODES[0]}
    done
    NODES[0]=$owner
    for i in "${NODES[@]:masters}"; do
        eventually 20 node_replicates "$i" "$id" || { say "no replica"; exit 1; }
        eventually 20 node "$i" replica_follows || { say "the replica does not follow"; exit 1; }
    done
    redis_use "${NODES[0]}"
}
node_replicates() { [ "$(node "$1" redis_cli CLUSTER REPLICATE "$2" 2>&1)" = OK ]; }

# node NUMBER COMMAND…: turned to that server.
node() {
    local before=$REDIS status=0
    redis_use "$1"
    "${@:2}" || status=$?
    redis_use "$before"
    return "$status"
}

# Each knows all others, and who has each slot.
cluster_is_whole() {
    local i info
    for i in "${NODES[@]}"; do
        info=$(node "$i" redis_cli CLUSTER INFO)
        [[ $info == *cluster_state:ok* && $info == *cluster_known_nodes:${#NODES[@]}[[:space:]]* ]] || return
    done
}

# Which node takes what has CLUSTER_TAG.
cluster_owner() {
    local i
    for i in "${NODES[@]}"; do
        [[ $(node "$i" redis_cli SET "${CLUSTER_TAG}probe" 1 PX 1 2>&1) == OK ]] && echo "$i" && return
    done
}

# cluster_move NUMBER COMMAND…: moves the slot of CLUSTER_TAG from its owner to that node, as an administrator does; the
# command runs in the midst of it.
cluster_move() {
    local to=$1 from slot from_id to_id i keys
    shift
    from=$(cluster_owner)
    slot=$(redis_cli CLUSTER KEYSLOT "$CLUSTER_TAG")
    from_id=$(node "$from" redis_cli CLUSTER MYID) to_id=$(node "$to" redis_cli CLUSTER MYID)
    node "$to" redis_cli CLUSTER SETSLOT "$slot" IMPORTING "$from_id" >/dev/null
    node "$from" redis_cli CLUSTER SETSLOT "$slot" MIGRATING "$to_id" >/dev/null
    mapfile -t keys < <(node "$from" redis_cli CLUSTER GETKEYSINSLOT "$slot" 1)
    node "$from" redis_cli MIGRATE 127.0.0.1 "${redis_ports[to]}" "${keys[0]}" 0 5000 >/dev/null
    "$@"
    while mapfile -t keys < <(node "$from" redis_cli CLUSTER GETKEYSINSLOT "$slot" 100) && [ -n "${keys[0]:-}" ]; do
        node "$from" redis_cli MIGRATE 127.0.0.1 "${redis_ports[to]}" "" 0 5000 KEYS "${keys[@]}" >/dev/null
    done
    for i in "$to" "$from" "${NODES[@]}"; do
        node "$i" redis_cli CLUSTER SETSLOT "$slot" NODE "$to_id" >/dev/null 2>&1
    done
}
