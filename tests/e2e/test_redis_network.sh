#!/bin/bash
# Hosts with a network between them: the server and two mounts each have a network namespace, joined by a bridge; one
# mount speaks IPv4, the other IPv6, both from inside of the sandbox.  Cables are pulled, packets vanish one way or both
# ways, connections are reset.  The promises about a bad network in test_redis_failure.sh (with a proxy on the loopback,
# where TCP itself always works) must also hold where TCP loses its packets.
#
# The namespaces have no names: they are those of processes that this test starts, and vanish with the last process in
# them.  Nothing outside of them has an address, a route or a rule because of this test.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

TTL=2400     # milliseconds of every lease here
PATIENCE=500 # of a request to the server, with all its tries
OPTIONS=ttl=${TTL}ms,timeout=${PATIENCE}ms,command_timeout=300ms,connect_timeout=300ms
CALL=$((3 * PATIENCE + SLACK)) # a call may need some requests, one after the other
BACK=$((1500 + SLACK))         # a connection attempt that runs, a pause (at most ttl/6), another attempt

# --- the network ---

command -v ip >/dev/null || skip_all "no ip (package iproute2)"
command -v nft >/dev/null || skip_all "no nft (package nftables)"
unshare --net true 2>/dev/null || skip_all "no network namespaces"

declare -A namespace=()
within() { # HOST COMMAND…
    local host=$1
    shift
    nsenter --net="${namespace[$host]}" "$@"
}

new_host() { # NAME
    local own
    own=$(readlink /proc/self/ns/net)
    start setpriv --pdeathsig KILL unshare --net sleep 1000
    namespace[$1]=/proc/$STARTED/ns/net
    eventually 5 eval '[ "$(readlink "${namespace['"$1"']}")" != '"'$own'"' ]' || exit 1
    within "$1" ip link set lo up
}

# A cable from a port of the server's bridge to the host, whose address is .NUMBER and ::NUMBER.
connect_host() { # NAME NUMBER
    within server ip link add "to-$1" type veth peer name net0 netns "${namespace[$1]//[^0-9]/}" || return
    within server ip link set "to-$1" master net0 up || return
    give_address "$1" "$2"
}
give_address() { # HOST NUMBER
    within "$1" ip address add "10.213.0.$2/24" dev net0 &&
        within "$1" ip address add "fd00::$2/64" dev net0 nodad &&
        within "$1" ip link set net0 up
}

new_host server
new_host A
new_host B
within server ip link add net0 type bridge mcast_snooping 0 || skip_all "no bridges in network namespaces"
give_address server 1
connect_host A 2 || skip_all "no veth devices"
connect_host B 3
# The rules stand at the server: a host does not see why it is not answered.
within server nft -f - <<'EOF' || skip_all "no nftables in network namespaces"
table inet faults {
    chain up {
        type filter hook input priority 0; policy accept;
    }
    chain down {
        type filter hook output priority 0; policy accept;
    }
}
EOF
declare -A number=([A]=2 [B]=3)

cable() { within server ip link set "to-$1" "$2"; } # HOST up|down
# What the host sends (up) or is sent (down) vanishes, is rejected….  With a port, only what is from or to that one.
fault() { # HOST up|down WHAT [PORT]
    local side=saddr port=sport
    [ "$2" = up ] || side=daddr port=dport
    within server nft add rule inet faults "$2" ip "$side" "10.213.0.${number[$1]}" ${4:+tcp "$port" "$4"} "$3" &&
        within server nft add rule inet faults "$2" ip6 "$side" "fd00::${number[$1]}" ${4:+tcp "$port" "$4"} "$3"
}
silence() { # HOST up|down|both
    [ "$2" = down ] || fault "$1" up drop || fail "no rule"
    [ "$2" = up ] || fault "$1" down drop || fail "no rule"
}
well() { within server nft flush table inet faults; }

redis_within=(nsenter --net="${namespace[server]}")
redis_start --bind '*' -::* --protected-mode no
mount_backend "redis://10.213.0.1:$REDIS_PORT" "$OPTIONS" nsenter --net="${namespace[A]}"
MOUNT_A=$MNT LOG_A=$LOG
mount_backend "redis://[fd00::1]:$REDIS_PORT" "$OPTIONS" nsenter --net="${namespace[B]}"
MOUNT_B=$MNT LOG_B=$LOG
for name in A A2 A3 A4 A5; do on "$MOUNT_A" actor $name; done
for name in B B2 B3 B4 B5; do on "$MOUNT_B" actor $name; done

# --- locks ---

waiters() { [ "$(on "$MOUNT_B" attribute "$1" waiters)" = "$2" ]; }
lost() { answers "$1" "get($2, 'state')" lost; }  # ACTOR HANDLE

# promptly NAME EXPRESSION PATTERN: answers so, and in time.
promptly() {
    local began
    now
    began=$NOW
    says "$@"
    now
    [ $((NOW - began)) -le "$CALL" ] || fail "$1: $2: took $((NOW - began)) ms"
}

# The network is whole again: calls succeed, much sooner than TCP would send again what it has.
usable() { # ACTOR
    local began
    now
    began=$NOW
    expect eventually 20 answers "$1" "acquire('probe-$1')" ok
    now
    say "$1 works again after $((NOW - began)) ms"
    expect [ $((NOW - began)) -le "$BACK" ]
    says "$1" "rm('probe-$1')" ok
}

# The service is away for the actor: every call ends in time with an error, and none says that something is free.
away_for() { # ACTOR HANDLE NAME: a handle on something else, and a name that another holds
    promptly "$1" "acquire('$3')" '@(ENOLCK|EIO|EEXIST)'
    promptly "$1" "flock($2, 'EX|NB')" ENOLCK
    promptly "$1" "flock($2, 'EX')" ENOLCK
    promptly "$1" "stat('fresh', 'size')" EIO
    promptly "$1" 'ls()' EIO
    promptly "$1" "acquire('fresh')" '@(ENOLCK|EIO)'
}

hold() { # ACTOR NAME: a lease as f, a flock as g
    says "$1" "f = op('$2-lease', 'RDWR|CREAT|EXCL'); write(f, 'text')" ok
    says "$1" "g = op('$2-flock', 'RDWR|CREAT'); flock(g, 'EX')" ok
}
release() { # ACTOR NAME
    says "$1" "rm('$2-lease')" ok
    says "$1" 'close(f)' ok
    says "$1" "flock(g, 'UN')" ok
    says "$1" 'close(g)' ok
}
both_held() { [ "$(ask "$1" 'get(f, "state") + get(g, "state")')" = heldheld ]; } # ACTOR

wait_for() { # ACTOR NAME RANK: the next in that queue
    says "$1" "w = op('$2', 'RDONLY')" ok
    tell "$1" "flock(w, 'EX') or boottime()"
    expect eventually 5 waiters "$2" "$3"
}
in_order() { # ACTOR…: the first has its turn, and the others one after the other
    local reply
    while [ $# -gt 0 ]; do
        reply=$(hear "$1")
        expect_re "$reply" '^[0-9]+$' "the turn of $1"
        [ $# -eq 1 ] || expect quiet "$2"
        says "$1" 'close(w)' ok
        shift
    done
}

# --- cases ---

it "the hosts and the server have no network but their own, and the mounts are sandboxed"
for host in A B; do
    expect_is "$(within $host ip -o address show dev net0 | grep -cE '10\.213\.0\.|fd00::')" 2
done
expect_is "$(ip -o link | grep -cE 'net0|to-[AB]')" 0
for mount in "$MOUNT_A" "$MOUNT_B"; do
    expect grep -q '^sandbox: no capabilities, no_new_privs' "$mount/.leasefs/status"
done
expect_is "$(redis_cli CLIENT LIST TYPE normal | grep -c 'addr=10.213.0.2:.*name=leasefs')" 1
expect_is "$(redis_cli CLIENT LIST TYPE normal | grep -cF 'addr=[fd00::3]:')" 1

it "a cable is out for less than the TTL: nothing is lost, and who waits keeps its place"
hold A short
hold B turn
wait_for A2 turn-flock 1
wait_for B2 turn-flock 2
wait_for A3 turn-flock 3
wait_for A4 turn-lease 1
wait_for B3 turn-lease 2
wait_for A5 turn-lease 3
cable A down
pause 0.8
cable A up
expect constantly $((TTL + TTL / 6)) both_held A # longer than their terms: they are renewed
expect both_held B
for name in A2 A3 A4 A5 B2 B3; do expect quiet $name; done
release B turn
in_order A2 B2 A3
in_order A4 B3 A5
says A 'read(f)' text
release A short

# HOST OTHER: the host's holders know that they lost before the other's waiters have it.
cable_out() {
    hold "$1" long
    says "${1}2" "g = op('long-flock2', 'RDWR|CREAT'); flock(g, 'EX')" ok
    wait_for "${2}2" long-lease 1
    wait_for "${2}3" long-flock 1
    wait_for "${2}4" long-flock2 1
    cable "$1" down
    says "$1" 'import threading; seen = {}' ok
    says "$1" 'watch = threading.Thread(target=lambda: seen.update(f=holds_still(f)))' ok
    says "$1" 'watch.start()' ok
    tell "${1}2" 'holds_still(g)'
    held_flock=$(ask "$1" 'holds_still(g)')
    held_flock2=$(hear "${1}2")
    says "$1" 'watch.join()' ok
    compare lease "$(ask "$1" 'seen["f"]')" "$(hear "${2}2")"
    compare flock "$held_flock" "$(hear "${2}3")"
    compare "flock of another" "$held_flock2" "$(hear "${2}4")"
    expect lost "$1" f
    expect lost "$1" g
    for handle in f g; do
        promptly "$1" "read($handle)" ESTALE
        promptly "$1" "write($handle, 'late')" ESTALE
        promptly "$1" "poll($handle, 'IN')" '*ERR*HUP*'
    done
    promptly "$1" "rm('long-lease')" 'E@(PERM|IO|NOLCK)'
    promptly "$1" 'close(f)' ok
    promptly "$1" 'flock(g, "UN")' ok
    promptly "$1" 'close(g)' ok
    promptly "${1}2" 'close(g)' ok
    cable "$1" up
    usable "$1"
    says "$1" 'acquire("long-lease")' '@(EEXIST|EBUSY)'
    for name in 2 3 4; do says "$2$name" 'close(w)' ok; done
}
compare() { # WHAT BELIEVED GRANTED
    expect_re "$2 $3" '^[0-9]+ [0-9]+$' "stamps of the $1"
    say "the $1: believed in until $((${3:-0} - ${2:-0})) us before the next had it"
    expect [ "$2" -lt "$3" ]
}

it "a cable is out for longer, IPv4: holders are told that they lost before a waiter of another host has it"
cable_out A B
it "a cable is out for longer, IPv6: the same"
cable_out B A

# HOST OTHER WAY
half_open() {
    says "$1" 'idle = op("idle", "RDWR|CREAT"); flock(idle, "EX"); flock(idle, "UN")' ok
    says "$2" 'f = op("theirs", "RDWR|CREAT|EXCL")' ok
    silence "$1" "$3"
    away_for "$1" idle theirs
    well
    usable "$1"
    says "$1" 'acquire("theirs")' EEXIST
    says "$1" 'flock(idle, "EX|NB")' ok
    says "$1" 'close(idle)' ok
    says "$2" 'acquire("fresh")' ok
    says "$2" 'rm("fresh")' ok
    says "$2" 'rm("theirs")' ok
    says "$2" 'close(f)' ok
}

it "half-open, nothing passes: calls end in time with ENOLCK or EIO, and all works when it is whole again"
half_open A B both
it "half-open, what the host sends vanishes (IPv6): the same"
half_open B A up
it "half-open, what the server answers vanishes: the same"
half_open A B down

it "half-open, and the server has granted what nobody was told of: that is undone, not left to its TTL"
says A2 'w = op("unsure-flock", "RDONLY|CREAT")' ok
silence A down
tell A2 'flock(w, "EX|NB")'
promptly A 'acquire("unsure-lease")' '@(ENOLCK|EIO)'
expect_is "$(hear A2)" ENOLCK
expect redis_key unsure-flock
well
usable A
says B 'acquire("unsure-lease")' ok
says B 'acquire("unsure-flock")' ok
for name in lease flock; do says B "rm('unsure-$name')" ok; done
says A2 'close(w)' ok

it "half-open for less than the TTL, in either direction: nothing is lost"
hold A still-A
hold B still-B
for ways in "up down" "down both" "both up"; do
    silence A "${ways% *}"
    silence B "${ways#* }"
    pause 0.5
    well
    expect constantly 1000 eval 'both_held A && both_held B' # until they have been renewed
done
release A still-A
release B still-B

losses() { grep -c "connection lost" "$1"; } # LOG
lost_again() { [ "$(losses "$LOG_A")" -gt "$1" ] && [ "$(losses "$LOG_B")" -gt "$2" ]; } # LOSSES OF A, OF B

it "connections are reset: nothing is lost, and a wait goes on"
hold A reset
hold B reset-turn
wait_for A2 reset-turn-flock 1
wait_for A3 reset-turn-lease 1
before=("$(losses "$LOG_A")" "$(losses "$LOG_B")")
for host in A B; do
    fault $host up "reject with tcp reset"
done
expect eventually 2 lost_again "${before[@]}"
pause 0.3
well
expect constantly 1000 both_held A
for i in 1 2 3; do # now both ends know
    before=("$(losses "$LOG_A")" "$(losses "$LOG_B")")
    for host in A B; do within $host ss -HK dport = ":$REDIS_PORT" >"$TEST_DIR/ended.$host" 2>/dev/null; done
    if [ -s "$TEST_DIR/ended.A" ] && [ -s "$TEST_DIR/ended.B" ]; then
        expect eventually 2 lost_again "${before[@]}"
    fi
    pause 0.3
done
[ -s "$TEST_DIR/ended.A" ] || say "left out: ss -K ends the connections of a host: would run on a kernel with CONFIG_INET_DIAG_DESTROY"
expect constantly "$TTL" both_held A
expect both_held B
expect quiet A2
expect quiet A3
release B reset-turn
in_order A2
in_order A3
release A reset

# The port of the host's newest connection of that type.
port_of() { # HOST pubsub|normal
    local n=${number[$1]}
    redis_cli CLIENT LIST TYPE "$2" |
        sed -nE "s/.* addr=(10\.213\.0\.$n|\[fd00::$n\]):([0-9]+) .* name=leasefs .*/\2/p" | tail -n 1
}
hand_over() { # HOST OTHER HELD: it comes well before a waiter that says nothing is passed over, after its TTL
    local began granted port
    hold "$2" pass
    wait_for "${1}2" "pass-$3" 1
    wait_for "${2}2" "pass-$3" 2
    port=$(port_of "$1" pubsub)
    expect_re "$port" '^[0-9]+$' "the port"
    fault "$1" down drop "$port"
    began=$(ask "$2" 'boottime()')
    release "$2" pass
    granted=$(hear "${1}2")
    say "handed over after $(((granted - began) / 1000)) ms"
    expect [ $(((granted - began) / 1000)) -lt $((TTL - 400)) ] # TTL / 3, or what silence on that connection takes
    expect quiet "${2}2"
    says "${1}2" 'close(w)' ok
    in_order "${2}2"
    well
}

it "only the connection for messages is cut: a lock is handed over within a waiter's refresh"
hand_over A B flock
hand_over B A lease

it "only the connection for commands is cut: a call goes on over another, and succeeds in its time"
for host in A B; do
    for way in up down; do
        port=$(port_of $host normal)
        expect_re "$port" '^[0-9]+$' "the port"
        fault $host $way drop "$port"
        promptly $host "acquire('detour')" ok
        well
        promptly $host "rm('detour')" ok
    done
done

finish
