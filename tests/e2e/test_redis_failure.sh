#!/bin/bash
# Locks while Redis is away, slow or emptied.  Two rules matter most.  No call hangs.  leasefs never shows a lock
# as free, or as still held, unless it knows that.
#
# check_redis_failures has servers that are full, read-only or without scripts; check_redis_foreign, keys that another
# client changes; contract_faults and check_redis_grace, servers that are restarted.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
SEED=${STRESS_SEED:-$((SRANDOM % 32768))}

TTL=2000      # milliseconds of every lease here
PATIENCE=700  # of a request to the server, with all its tries
OPTIONS=ttl=${TTL}ms,timeout=${PATIENCE}ms,command_timeout=300ms,connect_timeout=300ms
# A call may need some requests, one after the other: look-up, create, and undoing what was not confirmed.
CALL=$((3 * PATIENCE + SLACK))

# promptly NAME EXPRESSION PATTERN: answers so, and in time.
promptly() {
    local began
    now
    began=$NOW
    says "$@"
    now
    [ $((NOW - began)) -le "$CALL" ] || fail "$1: $2: took $((NOW - began)) ms"
}

lost() { answers "$1" "get($2, 'state')" lost; }  # ACTOR HANDLE

expect_lost() { # ACTOR HANDLE [LIMIT]: it has lost what it held, and every call through the handle says so
    expect eventually "${3:-10}" lost "$1" "$2"
    promptly "$1" "read($2)" ESTALE
    promptly "$1" "write($2, 'late')" ESTALE
    promptly "$1" "os.fsync($2)" ESTALE
    promptly "$1" "poll($2, 'IN')" '*ERR*HUP*'
}

# The service is away for A: every call ends in time with an error, and none says that something is free.
away_for() { # ACTOR HANDLE NAME: a handle on something else, and a name that another holds
    promptly "$1" "acquire('$3')" '@(ENOLCK|EIO|EEXIST)'
    promptly "$1" 'acquire("fresh")' '@(ENOLCK|EIO)'
    promptly "$1" "flock($2, 'EX|NB')" ENOLCK
    promptly "$1" "flock($2, 'EX')" ENOLCK
    promptly "$1" 'ls()' EIO
    promptly "$1" "stat('$3', 'size')" '@(EIO|[0-9]*)'
    promptly "$1" 'stat("fresh", "size")' EIO
}

usable() { # ACTOR: it can take locks (again)
    expect eventually 10 answers "$1" 'acquire("probe")' ok
    says "$1" 'ls()' '*probe*'
    says "$1" 'rm("probe")' ok
}

leasefs_fails() { # PATTERN URI [OPTIONS]: it does not mount, in time, and says why
    local point=$TEST_DIR/nowhere began said status=0
    mkdir -p "$point"
    now
    began=$NOW
    said=$(timeout -s KILL 20 "$LEASEFS" -o "$OPTIONS${3:+,$3}" "$2" "$point" 2>&1) || status=$?
    now
    expect_is "$status" 1 "exit status"
    expect_is "$said" "$1" "the error"
    expect_is "$(grep -c . <<<"$said")" 1 "lines of the error"
    expect [ $((NOW - began)) -le "$CALL" ]
    if answering "$point"; then
        fail "it is mounted"
        umount -l "$point"
    fi
}

# --- mounting ---

redis_start --enable-debug-command yes
proxy_start "$SEED"
say "seed: STRESS_SEED=$SEED"

it "a server that is away when mounting is an error that says where it was looked for"
proxy refuse on
leasefs_fails "*127.0.0.1:$PROXY_PORT*" "$PROXY_URI"
leasefs_fails "*$TEST_DIR/no-such-socket*" "redis+unix://$TEST_DIR/no-such-socket"
proxy refuse off
proxy pause # takes connections and says nothing
leasefs_fails "*127.0.0.1:$PROXY_PORT*" "$PROXY_URI"
proxy resume

# A's mount reaches the server through the proxy, B's does not.
mount_backend "$PROXY_URI" "$OPTIONS"
actor A
actor A2
mount_redis "$OPTIONS"
DIRECT=$MNT
actor B

# --- away ---

it "connections are reset while locks are held and waited for: nothing is lost, and the wait goes on"
says A 'f = op("short", "RDWR|CREAT|EXCL"); write(f, "text")' ok
says A 'g = op("short-flock", "RDWR|CREAT"); flock(g, "EX")' ok
says A2 'w = op("short-wait", "RDWR|CREAT")' ok
says B 'f = op("short-wait", "RDWR|CREAT"); flock(f, "EX")' ok
tell A2 'flock(w, "EX")'
expect eventually 5 waiters short-wait 1
for i in 1 2 3; do
    proxy drop
    pause 0.1
done
now
T=$NOW
while [ "$NOW" -lt $((T + 2 * TTL)) ]; do # longer than their terms: they are renewed
    expect_is "$(ask A 'get(f, "state")') $(ask A 'get(g, "state")')" "held held"
    says B 'acquire("short")' EEXIST
    pause 0.2
    now
done
expect quiet A2
says B 'flock(f, "UN")' ok
expect_is "$(hear A2)" ok
says A2 'close(w)' ok
says A 'read(f)' text
says A 'rm("short")' ok
says A 'close(f)' ok
says A 'flock(g, "UN")' ok
says A 'close(g)' ok
says B 'acquire("short")' ok
says B 'rm("short")' ok

it "away while idle: each call ends in time with ENOLCK or EIO, and all works when it is back"
says A 'idle = op("idle", "RDWR|CREAT"); flock(idle, "EX"); flock(idle, "UN")' ok
says B 'f = op("theirs", "RDWR|CREAT|EXCL")' ok
proxy refuse on
proxy drop
away_for A idle theirs
proxy refuse off
usable A
says A 'acquire("theirs")' EEXIST
says A 'flock(idle, "EX|NB")' ok
says A 'close(idle)' ok
says B 'rm("theirs")' ok
says B 'close(f)' ok

it "away for longer than the TTL: holders are told that they lost, before another can have it; who waits has its turn later"
says A 'f = op("long", "RDWR|CREAT|EXCL"); write(f, "text")' ok
says A 'g = op("long-flock", "RDWR|CREAT"); flock(g, "EX")' ok
says A2 'w = op("long-wait", "RDWR|CREAT")' ok
says B 'f = op("long-wait", "RDWR|CREAT"); flock(f, "EX")' ok
tell A2 'flock(w, "EX")'
expect eventually 5 waiters long-wait 1
proxy refuse on
proxy drop
until [ "$(ask B 'acquire("long")')" = ok ]; do # the moment at which another has it
    now
    pause 0.002
done
expect lost A f
expect eventually 5 answers B 'acquire("long-flock")' ok
expect lost A g
expect_lost A f
expect_lost A g
promptly A 'close(f)' ok
promptly A 'flock(g, "UN")' ok
promptly A 'rm("long")' 'E@(PERM|IO|NOLCK)'
expect quiet A2
proxy refuse off
usable A
says B 'rm("long")' ok
says B 'rm("long-flock")' ok
says A 'flock(g, "EX|NB")' ok
says A 'close(g)' ok
says B 'flock(f, "UN")' ok
expect_is "$(hear A2)" ok
says A2 'close(w)' ok
says B 'close(f)' ok

# --- slow and unsure ---

it "slow: calls succeed, later"
mount_backend "$PROXY_URI" "ttl=${TTL}ms,timeout=15s" # so that the machine may be slow, too
actor S
MNT=$DIRECT
proxy delay both 40 20 exponential
says S 'acquire("slow")' ok
says B 'acquire("slow")' EEXIST
says S 'rm("slow")' ok
says B 'acquire("slow")' ok
says B 'rm("slow")' ok
proxy clear

it "slow: a handled signal does not interrupt the opening of a free name, and a fatal one does"
proxy delay both 10
says S 'opens_beside_timer("timer", 60, 0.003)' none
says S 'idle = op("killed", "RDONLY|CREAT")' ok
proxy pause
says S 'killed = os.fork() or (signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003), flock(idle, "EX|NB"))' ok
pause 0.2 # it waits for the server, and has had signals
expect_is "$(ask S 'os.waitpid(killed, os.WNOHANG)')" '(0, 0)'
says S 'kill(killed)' ok
expect eventually 5 eval '[ "$(ask S "os.waitpid(killed, os.WNOHANG)[0] == killed")" = True ]'
proxy resume
proxy clear
end_actor S

it "a reply that is lost decides nothing: an acquire is granted or nothing is held, a release has released"
for cut in 0 1 5; do
    proxy cut $cut EVAL
    outcome=$(ask A "f = op('unsure', 'RDWR|CREAT|EXCL')")
    case $outcome in
    ok)
        says B 'acquire("unsure")' EEXIST
        proxy cut $cut EVAL
        promptly A 'rm("unsure")' ok
        says A 'close(f)' ok
        ;;
    *) expect_is "$outcome" '@(ENOLCK|EIO)' ;;
    esac
    expect eventually 5 answers B 'acquire("unsure")' ok
    says B 'rm("unsure")' ok
done
proxy clear

it "slower than the time that a call has: it ends with an error, and what came of it in the end is undone"
proxy delay down $((CALL + 1000))
promptly A 'acquire("too-slow")' '@(ENOLCK|EIO)'
promptly A 'ls()' EIO
proxy clear
proxy drop
usable A
expect eventually 5 answers B 'acquire("too-slow")' ok
says B 'rm("too-slow")' ok

it "silence, with the connection standing: no call hangs, and all works when the network is whole again"
proxy loss both 1
promptly A 'acquire("silent")' '@(ENOLCK|EIO)'
promptly A 'ls()' EIO
proxy clear
usable A
expect eventually 5 answers B 'acquire("silent")' ok
says B 'rm("silent")' ok

it "a bad network, by chance: whoever was told that it has the lock has it, and no call hangs"
proxy delay both 5 5 exponential
proxy break both 0.05
for i in {1..15}; do
    outcome=$(ask A "acquire('chance')")
    case $outcome in
    ok)
        says B 'acquire("chance")' EEXIST
        outcome=$(ask A 'rm("chance")')
        expect_is "$outcome" '@(ok|EIO|ENOLCK|EPERM|ENOENT)'
        ;;
    *) expect_is "$outcome" '@(ENOLCK|EIO|EEXIST)' ;;
    esac
done
proxy clear
usable A
expect eventually 5 answers B 'acquire("chance")' ok
says B 'rm("chance")' ok

# --- standing still ---

it "a server that stands still for less than the TTL costs nobody a lock"
says A 'f = op("still", "RDWR|CREAT|EXCL")' ok
redis_pause
pause 0.5
redis_resume
expect constantly $((2 * TTL)) answers A 'get(f, "state")' held
expect_is "$(redis_cli DEBUG SLEEP 0.5)" OK
expect constantly $TTL answers A 'get(f, "state")' held
says B 'acquire("still")' EEXIST

it "a server that stands still for longer: no call hangs, holders are told at their deadline, nothing is granted twice"
says A 'idle = op("idle2", "RDWR|CREAT"); flock(idle, "EX"); flock(idle, "UN")' ok
redis_pause
now
T=$NOW
expect eventually $((TTL / 1000 + 2)) lost A f
now
expect [ $((NOW - T)) -le $((TTL + SLACK)) ]
expect_lost A f
away_for A idle still
promptly A 'close(f)' ok
redis_resume
usable A
usable B
expect eventually 10 answers B 'acquire("still")' ok
says B 'rm("still")' ok
says A 'close(idle)' ok

# --- emptied ---

held() { [ "$(ask "$1" "get($2, \"state\")")" = held ]; } # ACTOR HANDLE

it "FLUSHALL: every holder keeps its lock, in directories too, and who waited its place; the status tells of it"
says A 'f = op("flushall", "RDWR|CREAT"); flock(f, "EX")' ok
says A 'os.mkdir(path("dir")); g = op("dir/flushall", "RDWR|CREAT|EXCL")' ok
says B 'f = op("flushall", "RDWR|CREAT")' ok
tell B 'flock(f, "EX")'
expect eventually 5 waiters flushall 1
redis_cli FLUSHALL >/dev/null
expect eventually 5 redis_key flushall
expect eventually 5 redis_key dir/flushall
expect eventually 5 grep -q '^grace period: no new lock for [0-9]* s, the server lost data$' "$MNT/.leasefs/status"
expect grep -q '^leasefs_grace_seconds [1-9]' "$MNT/.leasefs/metrics"
expect grep -q 'grace period: no new lock for [0-9]* s, the server lost data' -r "$TEST_DIR" --include="log*"
promptly A 'acquire("grace")' ENOLCK
promptly A 'op("grace", "RDWR|CREAT")' ENOLCK
says A 'n = op("grace", "RDONLY|CREAT"); flock(n, "EX|NB")' ENOLCK
says A 'fcntl.lockf(n, fcntl.LOCK_SH | fcntl.LOCK_NB)' ENOLCK
promptly A 'acquire("flushall")' EEXIST
says A2 'idle = op("flushall", "RDWR|CREAT")' ok
tell A2 'w = op("grace", "RDONLY|CREAT"); flock(w, "EX")'
expect eventually 20 eval '! grep -q "^grace period: " "$MNT/.leasefs/status"'
expect_is "$(hear A2)" ok
says A2 'close(w)' ok
says A 'close(n)' ok
says A2 'close(idle)' EBUSY
expect grep -q '^leasefs_grace_seconds 0$' "$MNT/.leasefs/metrics"
expect constantly $TTL eval 'held A f && held A g'
expect quiet B
says A 'rm("dir/flushall")' ok
says A 'os.rmdir(path("dir"))' ok
says A 'flock(f, "UN")' ok
expect_is "$(hear B)" ok
says A 'close(f)' ok
says A 'close(g)' ok
says B 'close(f)' ok
usable A

finish
