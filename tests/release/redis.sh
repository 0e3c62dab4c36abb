#!/bin/bash
# redis.sh: two mounts of Redis servers that fail over, of one that forgets, and of five that know nothing of each other,
# while processes lock and work, are stopped and killed.
#
#   make check-redis      as root; takes REDIS_FAILOVERS times 18 s, REDIS_FORGETS times 5 s and REDIS_REDLOCK minutes
#
# Three nodes, each with a server and a Sentinel, and two hosts, each with a mount, have a network namespace each.  In
# turns one host is left alone with the master: the Sentinels of the other two nodes make another master, while the old
# one is alive, and its clients do not know.  With wait=1 no two processes are ever told for the same moment that they
# hold what excludes each other; without it some are, or the fault does not bite.
#
# Then a server without a disk is emptied, and restarted, in turns: nothing overlaps, and nobody who holds a lock for all
# that time loses it.  It prints the longest time for which nothing new was granted.
#
# Then five servers without disks have a network namespace each: of two at a time each is killed and started again empty,
# stopped, or cut off; at the same time, one after the other, or together with one of the hosts.
#
# Environment: REDIS_FAILOVERS (50), with wait=1; REDIS_UNSAFE (5), without; REDIS_FORGETS (200); REDIS_REDLOCK, minutes
# (30); REDIS_CLIENTS, processes (30); REDIS_SEED; LEASEFS; STRESS_PROGRAMS, the directory of the programs (default: tests/stress of the build
# directory; `make check TESTS=` builds them).  It needs redis-server and iproute2.
if [ -z "${REDIS_APART:-}" ]; then
    exec env REDIS_APART=1 unshare --net -- "$0"
fi
ip link set lo up
FAILOVERS=${REDIS_FAILOVERS:-50} UNSAFE=${REDIS_UNSAFE:-5} FORGETS=${REDIS_FORGETS:-200}
REDLOCK=${REDIS_REDLOCK:-30} CLIENTS=${REDIS_CLIENTS:-30}
E2E_LIMIT=$(((FAILOVERS + UNSAFE) * 60 + FORGETS * 20 + REDLOCK * 120 + 600))
# shellcheck source=../e2e/lib.sh
. "$(dirname "$0")/../e2e/lib.sh"
# shellcheck source=../e2e/redis.sh
. "$(dirname "$0")/../e2e/redis.sh"

SEED=${REDIS_SEED:-$((SRANDOM % 30000))}
RANDOM=$SEED
PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/faults
[ -x "$PROGRAM" ] || skip_all "no program faults: make check builds it, or set STRESS_PROGRAMS"
OPTIONS=ttl=1s,timeout=800ms,command_timeout=400ms,connect_timeout=400ms
SENTINEL_PORT=26379
declare -A namespace=() at=()

# --- the network ---

# host NAME NUMBER: a namespace of its own, with the address 10.213.1.NUMBER.
host() {
    local own
    own=$(readlink /proc/self/ns/net)
    start setpriv --pdeathsig KILL unshare --net sleep 100000
    namespace[$1]=/proc/$STARTED/ns/net
    eventually 5 eval '[ "$(readlink "${namespace['"$1"']}")" != '"'$own'"' ]' || exit 1
    ip link add "to-$1" type veth peer name net0 netns "$STARTED" || skip_all "no veth devices"
    ip link set "to-$1" master whole up
    within "$1" ip link set lo up
    within "$1" ip address add "10.213.1.$2/24" dev net0
    within "$1" ip link set net0 up
}
within() { # HOST COMMAND…
    nsenter --net="${namespace[$1]}" "${@:2}"
}
# These are alone with each other.
cut() { # HOST…
    local host
    for host in "$@"; do ip link set "to-$host" master apart; done
}
mend() {
    local host
    for host in "${!namespace[@]}"; do ip link set "to-$host" master whole; done
}

# --- servers and Sentinels: node 1 is server 0, and so on ---

sentinel() { # NODE ARGUMENT…
    within "node$1" timeout 10 redis-cli -p $SENTINEL_PORT SENTINEL "${@:2}"
}
# The node of the master, as the Sentinel of that node knows it.
master() { # NODE
    local address
    address=$(sentinel "$1" GET-MASTER-ADDR-BY-NAME locks | head -n 1)
    [[ $address == 10.213.1.[123] ]] && echo "${address##*.}"
}
replaced() { # BY
    local named
    named=$(master $(($1 % 3 + 1))) && [ "$named" != "$1" ] && [ "$named" = "$(master $((($1 + 1) % 3 + 1)))" ] &&
        redis_use $((named - 1)) && [[ $(redis_cli ROLE | head -n 1) == master ]]
}
# All Sentinels name the same master, which has two replicas, and both mounts have locks of it.
settled() {
    local named i side
    named=$(master 1) && [ "$named" = "$(master 2)" ] && [ "$named" = "$(master 3)" ] || return
    redis_use $((named - 1))
    [ "$(redis_cli INFO replication | grep -cE '^slave[01]:.*state=online.*lag=[01]')" = 2 ] || return
    for i in 1 2 3; do
        [ "$(sentinel $i CKQUORUM locks | cut_off 3)" = "OK 3 usable" ] || return
    done
    for side in A B; do
        grep -qE '^state: connected' "${at[$side]}/.leasefs/status" || return
        ! grep -qE '^grace period: ' "${at[$side]}/.leasefs/status" || return
    done
}
cut_off() { command cut -d ' ' -f "1-$1"; } # to so many words

configure_sentinel() { # NODE
    mkdir "$TEST_DIR/sentinel.$1"
    printf '%s\n' "bind *" "protected-mode no" "port $SENTINEL_PORT" "dir $TEST_DIR/sentinel.$1" \
        "logfile $TEST_DIR/sentinel.$1/log" "sentinel monitor locks 10.213.1.1 ${redis_ports[0]} 2" \
        "sentinel down-after-milliseconds locks 500" "sentinel failover-timeout locks 2000" \
        "sentinel parallel-syncs locks 2" >"$TEST_DIR/sentinel.$1/conf"
    start setpriv --pdeathsig KILL nsenter --net="${namespace[node$1]}" redis-server "$TEST_DIR/sentinel.$1/conf" --sentinel
}

# mounts OPTION…: of the Sentinels; A and B.
mounts() {
    local side
    for side in A B; do
        mount_backend "redis+sentinel://10.213.1.1,10.213.1.2,10.213.1.3/locks" "$OPTIONS$1" \
            nsenter --net="${namespace[$side]}"
        at[$side]=$MNT
    done
    expect eventually 30 settled
    for width in 1 2; do
        expect eventually 20 mkdir -p "${at[A]}/q$width"
        expect setfattr -n user.lease.width -v "$width" "${at[A]}/q$width"
    done
}
unmount_both() {
    unmount "${at[A]}"
    unmount "${at[B]}"
}

# --- processes ---

work() { # OPTION…
    rm -rf "$TEST_DIR/files"
    mkdir "$TEST_DIR/files"
    start "$PROGRAM" --clients "$CLIENTS" --names 6 --seed "$SEED" --ttl 1000 "$@" "$TEST_DIR/files" "${at[A]}" "${at[B]}" \
        >"$TEST_DIR/history" 2>&1
    HISTORY=$STARTED
}
end_work() { # sets STATUS, and OVERLAPS and ACQUIRED of all so far
    local overlaps acquired
    STATUS=0
    kill -TERM "$HISTORY"
    wait "$HISTORY" || STATUS=$?
    sed 's/^/# /' "$TEST_DIR/history" | head -60
    overlaps=$(sed -n 's/^\([0-9]*\) overlaps, .*/\1/p' "$TEST_DIR/history")
    OVERLAPS=$((OVERLAPS + ${overlaps:-1000000}))
    acquired=$(sed -n 's/^\([0-9]*\) locks acquired, .*/\1/p' "$TEST_DIR/history")
    ACQUIRED=$((${ACQUIRED:-0} + ${acquired:-0}))
}
reported() { grep -qE "$1" "$TEST_DIR/history"; }

# failovers COUNT: with the processes of up to ten in one history.
failovers() {
    local i was side
    for ((i = 0; i < $1; i++)); do
        [ $((i % 10)) -ne 0 ] || work
        side=A
        ((i % 2)) && side=B
        was=$(master 1)
        cut "node$was" $side
        expect eventually 30 replaced "$was"
        pause 4 # the new master has opened, and the old one grants and renews
        mend
        expect eventually 60 settled
        pause 1
        [ $((i % 10)) -ne 9 ] && [ $i -ne $(($1 - 1)) ] && continue
        end_work
        "$2"
    done
}
safe() {
    expect test "$STATUS" -ne 1
    expect test "$STATUS" -ne 3
    expect reported '^0 overlaps, 0 fencing tokens that went back'
    expect reported ' 0 updates lost, 0 refused to holders, 0 tokens used twice'
}
unsafe() { :; }

# --- failovers ---

build_network() {
    ip link add whole type bridge mcast_snooping 0 || skip_all "no bridges in network namespaces"
    ip link add apart type bridge mcast_snooping 0
    ip link set whole up
    ip link set apart up
    host A 11
    host B 12
}
build_nodes() {
    for i in 1 2 3; do
        host node$i $i
        redis_within=(nsenter --net="${namespace[node$i]}")
        follow=()
        [ $i = 1 ] || follow=(--replicaof 10.213.1.1 "${redis_ports[0]}")
        redis_start --bind '*' --protected-mode no --repl-diskless-sync-delay 0 --repl-ping-replica-period 1 "${follow[@]}"
    done
    redis_within=()
    for i in 1 2 3; do configure_sentinel $i; done
}

[ $((UNSAFE + FAILOVERS + REDLOCK)) -eq 0 ] || build_network
[ $((UNSAFE + FAILOVERS)) -eq 0 ] || build_nodes
if [ "$UNSAFE" -gt 0 ]; then
    it "without wait= a master that is cut off, but alive, gives locks to a second holder ($UNSAFE failovers, seed $SEED)"
    mounts ""
    OVERLAPS=0
    failovers "$UNSAFE" unsafe
    say "$OVERLAPS overlaps in $UNSAFE failovers without wait="
    expect test "$OVERLAPS" -gt 0
    unmount_both
fi
if [ "$FAILOVERS" -gt 0 ]; then
    it "with wait=1 no lock has two holders ($FAILOVERS failovers, seed $SEED)"
    mounts ,wait=1
    OVERLAPS=0
    failovers "$FAILOVERS" safe
    say "$OVERLAPS overlaps in $FAILOVERS failovers with wait=1"
    for side in A B; do sed 's/^/# /' "${at[$side]}/.leasefs/status" | grep -E 'wait|reclaimed|lost'; done
    unmount_both
fi

# --- a server that forgets ---

HELD=20 # locks of each mount for all the time

# How many of them are not held is in LOST.
kept() {
    local side i
    LOST=0
    for side in A B; do
        for ((i = 0; i < HELD; i++)); do
            answers "holder$side" "get(h$i, 'state')" held || LOST=$((LOST + 1))
        done
    done
}
opened() {
    local side
    redis_key lfs:v:lfs:/ || return
    for side in A B; do ! grep -qE '^grace period: ' "${at[$side]}/.leasefs/status" || return; done
    [[ $(redis_cli GET lfs:v:lfs:/) == *' o '* ]]
}
# Takes and gives back a lock, again and again; the longest time without one, in milliseconds, is in the file.
probe() {
    local last longest=0
    now
    last=$NOW
    while :; do
        pause 0.02
        { touch "${at[B]}/probe" && rm "${at[B]}/probe"; } 2>/dev/null || continue
        now
        [ $((NOW - last)) -le $longest ] || { longest=$((NOW - last)); echo $longest >"$TEST_DIR/longest"; }
        last=$NOW
    done
}

forgets() {
    local side i probe
    redis_start
    mount_two "${OPTIONS/ttl=1s/ttl=3s}" # a server that is started again may be away for a second
    at[A]=$MOUNT_A at[B]=$MOUNT_B
    for side in A B; do
        MNT=${at[$side]}
        actor "holder$side"
        for ((i = 0; i < HELD; i++)); do says "holder$side" "h$i = op('held$side$i'); flock(h$i, 'EX')" ok; done
    done
    OVERLAPS=0
    work --forgetful --ttl 3000
    probe &
    probe=$!
    started+=("$probe")
    for ((i = 0; i < FORGETS; i++)); do
        pause "0.$((RANDOM % 9 + 1))"
        if ((i % 2)); then
            redis_kill
            redis_again
        else
            redis_cli FLUSHALL >/dev/null
        fi
        expect eventually 30 opened
        [ $((i % 20)) -ne 19 ] || { kept && say "$((i + 1)) times: $LOST lost"; }
    done
    kill "$probe"
    end_work
    kept
    say "$LOST of $((2 * HELD)) locks that were held all the time are lost; the longest time without a new lock: $(cat "$TEST_DIR/longest") ms"
    expect_is "$LOST" 0
    expect test "$STATUS" -ne 1
    expect test "$STATUS" -ne 3
    expect reported '^0 overlaps, 0 fencing tokens that went back'
}

if [ "$FORGETS" -gt 0 ]; then
    it "a server that forgets gives no lock to a second holder, and takes none away ($FORGETS times, seed $SEED)"
    forgets
fi

# --- five servers that know nothing of each other ---

MASTERS=(1 2 3 4 5)
declare -A struck=()

master_use() { # MASTER
    redis_within=(nsenter --net="${namespace[master$1]}")
    redis_use $((FIRST + $1 - 1))
}
strike() { # MASTER…
    local master
    for master; do
        master_use "$master"
        case $((RANDOM % 3)) in
        0) redis_kill && count killed ;;
        1) redis_pause && count stopped ;;
        2) cut "master$master" && count "cut off" ;;
        esac
    done
}
count() { struck[$1]=$((${struck[$1]:-0} + 1)); }
recover() { # all
    local master
    mend
    for master in "${MASTERS[@]}"; do
        master_use "$master"
        if gone "$REDIS_PID"; then
            redis_again
        elif redis_stopped; then
            redis_resume
        fi
    done
}
all_vote() {
    local side
    for side in A B; do
        [ "$(grep -c '^server: .* votes$' "${at[$side]}/.leasefs/status")" = ${#MASTERS[@]} ] || return
    done
}
build_masters() {
    local master
    FIRST=${#redis_ports[@]} SERVERS=
    for master in "${MASTERS[@]}"; do
        host "master$master" $((20 + master))
        redis_within=(nsenter --net="${namespace[master$master]}")
        redis_start --bind '*' --protected-mode no
        SERVERS+=,10.213.1.$((20 + master)):$REDIS_PORT
    done
    redis_within=()
    for side in A B; do
        mount_backend "redlock://${SERVERS#,}" "$OPTIONS" nsenter --net="${namespace[$side]}"
        at[$side]=$MNT
    done
    expect eventually 30 all_vote
}
strike_two() {
    local one two
    read -r one two < <(shuf -n 2 -e "${MASTERS[@]}" | tr '\n' ' ')
    case $((RANDOM % 3)) in
    0)
        strike "$one" "$two"
        ;;
    1)
        strike "$one"
        pause "0.$((RANDOM % 9 + 1))"
        recover
        strike "$two"
        ;;
    2)
        cut A "master$one" "master$two"
        count "cut off with a host"
        ;;
    esac
    pause "$((RANDOM % 3)).$((RANDOM % 10))"
    recover
    # servers that have come back have no vote yet: most times it is waited for, so that locks go on
    if [ $((RANDOM % 4)) -ne 0 ]; then expect eventually 60 all_vote; fi
}
redlock() {
    local kind end=$((SECONDS + 60 * REDLOCK)) piece
    OVERLAPS=0 ACQUIRED=0
    while [ $SECONDS -lt $end ]; do
        piece=$((SECONDS + 120))
        work --exclusive
        while [ $SECONDS -lt $piece ] && [ $SECONDS -lt $end ]; do strike_two; done
        expect eventually 60 all_vote
        end_work
        safe
    done
    for kind in "${!struck[@]}"; do say "$kind: ${struck[$kind]}"; done
    say "$OVERLAPS overlaps of $ACQUIRED locks that were acquired in $REDLOCK minutes"
}

if [ "$REDLOCK" -gt 0 ]; then
    it "of five servers two may be killed, stopped and cut off, and no lock has two holders ($REDLOCK minutes, seed $SEED)"
    build_masters
    redlock
fi
finish
