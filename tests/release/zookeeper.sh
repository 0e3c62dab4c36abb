#!/bin/bash
# zookeeper.sh: an ensemble of three ZooKeeper servers and two mounts of it, while leaders are killed, followers are cut
# off from the others but not from their clients, servers, daemons and processes are stopped and killed: no two locks
# for the same moment that they hold what excludes each other, tokens grow, and a file that compares them takes no stale
# one.
#
#   make check-zookeeper      as root; takes ZOOKEEPER_MINUTES (30) and some more
#
# Environment: ZOOKEEPER_MINUTES; ZOOKEEPER_CLIENTS, processes (12); ZOOKEEPER_SEED; LEASEFS; STRESS_PROGRAMS, the
# directory of the programs (default: tests/stress of the build directory; `make check TESTS=` builds them).
# It needs java, zookeeper, nftables and iproute2, and a network of its own, which it makes.
if [ -z "${ZOOKEEPER_APART:-}" ]; then
    exec env ZOOKEEPER_APART=1 unshare --net -- "$0"
fi
ip link set lo up
MINUTES=${ZOOKEEPER_MINUTES:-30}
E2E_LIMIT=$((MINUTES * 60 + 300))
# shellcheck source=../e2e/lib.sh
. "$(dirname "$0")/../e2e/lib.sh"

jar=/usr/share/java/zookeeper.jar
[ -r "$jar" ] || skip_all "no $jar (package libzookeeper-java)"
SEED=${ZOOKEEPER_SEED:-$((SRANDOM % 30000))}
RANDOM=$SEED
PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/faults
[ -x "$PROGRAM" ] || skip_all "no program faults: make check builds it, or set STRESS_PROGRAMS"

declare -A server at daemon
USERS=6200 # each server is a user, which distinguishes its packets

launch() { # NUMBER
    # shellcheck disable=SC2016 # it is for another shell
    setpriv --pdeathsig KILL --reuid $((USERS + $1)) --regid $((USERS + $1)) --clear-groups java -Xmx128m \
        -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jar" org.apache.zookeeper.server.quorum.QuorumPeerMain \
        "$TEST_DIR/servers/$1.cfg" </dev/null >"$TEST_DIR/servers/$1.log" 2>&1 &
    server[$1]=$!
    started+=("$!")
}
configure() { # NUMBER
    mkdir "$TEST_DIR/servers/$1"
    echo "$1" >"$TEST_DIR/servers/$1/myid"
    printf '%s\n' tickTime=500 initLimit=20 syncLimit=6 "dataDir=$TEST_DIR/servers/$1" "clientPort=$((21000 + $1))" \
        clientPortAddress=127.0.0.1 maxClientCnxns=0 admin.enableServer=false '4lw.commands.whitelist=*' >"$TEST_DIR/servers/$1.cfg"
    printf 'server.%d=127.0.0.1:2200%d:2300%d\n' 1 1 1 2 2 2 3 3 3 >>"$TEST_DIR/servers/$1.cfg"
    chown -R $((USERS + $1)) "$TEST_DIR/servers/$1"
}
mode() { # NUMBER: leader, follower, or nothing
    local said=
    { exec 7<>"/dev/tcp/127.0.0.1/$((21000 + $1))"; } 2>/dev/null || return
    echo srvr >&7
    said=$(timeout 2 cat <&7)
    exec 7<&-
    sed -n 's/^Mode: //p' <<<"$said"
}
leader() {
    local i
    for i in 1 2 3; do [ "$(mode $i)" != leader ] || { echo $i; return; }; done
    return 1
}
follower() {
    local i
    for i in 1 2 3; do [ "$(mode $i)" != follower ] || { echo $i; return; }; done
    return 1
}

# cut NUMBER: from the other servers, but not from clients.
cut() { nft add rule ip ensemble out meta skuid $((USERS + $1)) tcp dport 22001-23003 drop \; add rule ip ensemble out meta skuid $((USERS + $1)) tcp sport 22001-23003 drop; }
mend() { nft flush chain ip ensemble out; }

# --- faults: each is over, and mended, when its function returns ---

short() { pause "0.$((RANDOM % 9 + 1))"; }
long() { pause "$((RANDOM % 3 + 4)).5"; } # than a session of 4 s
either() { if ((RANDOM % 2)); then short; else long; fi; }
leader_killed() {
    local n
    n=$(leader) || return 0
    end_process "${server[$n]}"
    either
    launch "$n"
}
leader_stopped() {
    local n
    n=$(leader) || return 0
    kill -STOP "${server[$n]}"
    either
    kill -CONT "${server[$n]}"
}
leader_cut() {
    local n
    n=$(leader) || return 0
    cut "$n"
    long
    mend
}
follower_cut() {
    local n
    n=$(follower) || return 0
    cut "$n"
    long
    mend
}
follower_killed() {
    local n
    n=$(follower) || return 0
    end_process "${server[$n]}"
    short
    launch "$n"
}
all_restarted() {
    local n
    for n in 1 2 3; do end_process "${server[$n]}"; done
    for n in 1 2 3; do launch $n; done
}
daemon_stopped() {
    kill -STOP "${daemon[$1]}"
    either
    kill -CONT "${daemon[$1]}"
}
daemon_killed() {
    crash "${at[$1]}"
    eventually 60 leader >/dev/null # a mount of servers that have none is refused
    mount_at "${at[$1]}" "$URI" ttl=1s,background
    daemon[$1]=$DAEMON
}
KINDS=(leader_killed leader_stopped leader_cut follower_cut follower_cut follower_killed all_restarted daemon_stopped
    daemon_stopped daemon_killed)

mkdir "$TEST_DIR/servers"
chmod 755 "$TEST_DIR" "$TEST_DIR/servers"
nft add table ip ensemble \; add chain ip ensemble out '{ type filter hook output priority 0; }'
for i in 1 2 3; do
    configure $i
    launch $i
done
eventually 60 leader >/dev/null || { sed 's/^/# /' "$TEST_DIR"/servers/*.log; exit 1; }
URI=zookeeper://127.0.0.1:21001,127.0.0.1:21002,127.0.0.1:21003/release
for side in A B; do
    mount_backend "$URI" ttl=1s
    at[$side]=$MNT daemon[$side]=$DAEMON
done
for width in 1 2; do
    expect eventually 20 mkdir "${at[A]}/q$width"
    expect setfattr -n user.lease.width -v "$width" "${at[A]}/q$width"
done

MNT=${at[A]} actor A
MNT=${at[B]} actor B
quiet() { # NAME: it has not answered
    local id rest
    ! read -r -t 0.01 id rest <&"${actor_out[$1]}"
}
waiters() { [ "$(MNT=${at[A]} attribute "$1" waiters)" = "$2" ]; } # NAME COUNT

it "a leader that is killed takes no lock with it, and who waits goes on waiting"
expect eventually 20 answers A 'f = op("led", "RDWR|CREAT"); flock(f, "EX")' ok
token=$(MNT=${at[A]} attribute led token)
says B 'g = op("led", "RDONLY")' ok
tell B 'flock(g, "EX")'
expect eventually 10 waiters led 1
n=$(leader)
end_process "${server[$n]}"
expect eventually 60 leader >/dev/null
expect constantly 1000 quiet B
says A 'read(f, 1)' '@(|ok|ESTALE)'
says A 'flock(f, "UN")' ok
expect_is "$(hear B)" ok
expect eventually 10 eval '[ "$(MNT=${at[B]} attribute led token)" -gt "$token" ]'
says B 'flock(g, "UN")' ok
launch "$n"

it "a mount at a follower that is cut off has lost its lock before another mount is granted it, and goes on afterwards"
expect eventually 60 eval '[ -n "$(mode 1)" ] && [ -n "$(mode 2)" ] && [ -n "$(mode 3)" ]'
n=$(follower)
mount_backend "zookeeper://127.0.0.1:$((21000 + n))/release" ttl=1s
actor F
expect eventually 20 answers F 'h = op("cut", "RDWR|CREAT"); flock(h, "EX")' ok
says A 'h = op("cut", "RDONLY")' ok
tell F 'flock(op("wanted", "RDWR|CREAT"), "EX") or flock(h, "EX")'
expect_is "$(hear F)" ok
cut "$n"
tell A 'flock(h, "EX")'
expect_is "$(hear A 60)" ok
says F 'read(h, 1)' ESTALE
says F 'flock(h, "EX|NB")' '@(ENOLCK|EAGAIN)'
mend
says A 'flock(h, "UN")' ok
says F 'flock(h, "UN")' ok
expect eventually 60 answers F 'flock(h, "EX|NB")' ok
end_actor F
expect unmount "$MNT"
end_actor A
end_actor B

it "$MINUTES minutes of faults of an ensemble (seed $SEED): no validity overlaps, no token goes back, guarded files lose nothing"
mkdir "$TEST_DIR/files"
start "$PROGRAM" --clients "${ZOOKEEPER_CLIENTS:-12}" --names 6 --seed "$SEED" --ttl 1000 "$TEST_DIR/files" "${at[A]}" \
    "${at[B]}" >"$TEST_DIR/history" 2>&1
history=$STARTED
declare -A counts=()
now
end=$((NOW + MINUTES * 60000))
while now && [ "$NOW" -lt "$end" ]; do
    kind=${KINDS[RANDOM % ${#KINDS[@]}]}
    side=A
    ((RANDOM % 2)) && side=B
    "$kind" "$side"
    counts[$kind]=$((${counts[$kind]:-0} + 1))
    pause "$((RANDOM % 3)).$((RANDOM % 9 + 1))"
done
eventually 60 leader >/dev/null
for side in A B; do expect eventually 60 timeout 5 ls "${at[$side]}" >/dev/null; done
pause 10
for kind in "${!counts[@]}"; do say "$kind: ${counts[$kind]}"; done
status=0
kill -TERM "$history"
wait "$history" || status=$?
sed 's/^/# /' "$TEST_DIR/history" | head -60
expect test "$status" -ne 1
expect grep -qE '^0 overlaps, 0 fencing tokens that went back' "$TEST_DIR/history"
expect grep -qE ' 0 updates lost, 0 refused to holders, 0 tokens used twice' "$TEST_DIR/history"
finish
