#!/bin/bash
# Five Redis servers that know nothing of each other as the store: two mounts, and other clients of the algorithm beside
# them, while any two of the servers are killed, stopped, or started again without their data, and while three are gone.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
INTEROP=$E2E_DIR/interop
TTL=3 # so a server counts again 4.03 seconds after its start

for i in 0 1 2 3 4; do redis_start; done
printf -v ports '%s,' "${redis_ports[@]}"
printf -v hosts '127.0.0.1:%s,' "${redis_ports[@]}"
SERVERS=redlock://${hosts%,}

each() { # COMMAND, SERVER…: with each of these
    local server command=$1
    shift
    for server; do
        redis_use "$server"
        "$command"
    done
}
keys() { # NAME COUNT: so many servers have the key
    local count=0 server
    for server in 0 1 2 3 4; do
        redis_use "$server"
        gone "$REDIS_PID" || redis_stopped || ! redis_key "$1" || count=$((count + 1))
    done
    [ "$count" = "$2" ]
}
votes() { # COUNT: so many have a vote
    [ "$(grep -c '^server: .* votes$' "$MOUNT_A/.leasefs/status")" = "$1" ] &&
        [ "$(grep -c '^server: .* votes$' "$MOUNT_B/.leasefs/status")" = "$1" ]
}
refused() { # WORD BACKEND: the mount fails, with one line that has WORD in it
    local status=0
    new_mountpoint
    timeout 20 "$LEASEFS" "$2" "$MNT" >"$TEST_DIR/refused" 2>&1 </dev/null || status=$?
    expect_is "$status" 1 "exit status"
    expect_is "$(wc -l <"$TEST_DIR/refused")" 1 "lines"
    expect grep -qF -e "$1" "$TEST_DIR/refused"
}
# Locks of both mounts go round.
locks_work() { # NAME
    says A "acquire('$1')" ok
    says B "acquire('$1')" EEXIST
    says A "rm('$1')" ok
    says B "acquire('$1')" ok
    tell A "a = op('$1', 'RDONLY'); flock(a, 'EX')"
    expect eventually 10 on "$MOUNT_A" waiters "$1" 1
    says B "rm('$1')" ok
    expect_is "$(hear A)" ok
    says B "b = op('$1', 'RDONLY'); flock(b, 'EX|NB')" EAGAIN
    says A "flock(a, 'UN')" ok
    says B "flock(b, 'EX|NB')" ok
    says B 'close(b)' ok
    says A 'close(a)' ok
}

it "what cannot be a majority is refused before the mount, with the reason"
refused "fewer than 3 servers" redlock://127.0.0.1:1,127.0.0.1:2
refused "names a server twice" redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:1
refused "are the same server" "redlock://127.0.0.1:${redis_ports[0]},localhost:${redis_ports[0]},127.0.0.1:${redis_ports[1]}"
refused "1 of 3 servers are there, and 2 are needed" "redlock://127.0.0.1:${redis_ports[0]},127.0.0.1:1,127.0.0.1:2"
redis_use 0
redis_cli REPLICAOF 127.0.0.1 "${redis_ports[1]}" >/dev/null
refused "is a replica" "$SERVERS"
redis_cli REPLICAOF NO ONE >/dev/null
redis_cli CONFIG SET requirepass secret >/dev/null
refused "credentials=FILE" "$SERVERS"
REDISCLI_AUTH=secret redis_cli CONFIG SET requirepass "" >/dev/null

mount_backend "$SERVERS" ttl=$TTL
MOUNT_B=$MNT
actor B
mount_backend "$SERVERS" ttl=$TTL
MOUNT_A=$MNT LOG_A=$LOG
actor A

it "servers that were started lately grant nothing, and then do"
expect eventually 20 votes 5
locks_work first

it "a lease is shown on the other mount, with what it says, and its token"
says A 'acquire("text", "some content")' ok
expect_is "$(cat "$MOUNT_B/text")" "some content"
expect_is "$(ls "$MOUNT_B")" text
expect_re "$(on "$MOUNT_B" attribute text token)" '^[1-9][0-9]*$'
expect_is "$(on "$MOUNT_B" attribute text guarantee)" quorum
expect_not rm "$MOUNT_B/text"
expect eventually 5 keys text 5
expect setfattr -n user.lease.break -v 1 "$MOUNT_B/text"
expect_not exists text
expect eventually 5 keys text 0

it "a broken lock is shown until its guard is over, and then no more, also to who has the file open"
says A 'g = op("guarded", "RDWR|CREAT|EXCL"); write(g, "text"); put(g, "guard", "1s")' ok
says A 'stat("guarded", "size")' 4
expect setfattr -n user.lease.break -v 1 "$MOUNT_A/guarded"
says A 'exists("guarded")' True
expect eventually 5 keys guarded 0
says A 'exists("guarded")' False
says A 'close(g)' ok

it "what it cannot do it refuses, and the log says why"
says A 'f = op("handle", "RDWR|CREAT"); flock(f, "SH")' EOPNOTSUPP
says A 't = op("q/job-", "RDWR|CREAT")' ENOENT
expect mkdir "$MOUNT_A/q"
says A 't = op("q/job-", "RDWR|CREAT")' EOPNOTSUPP
expect_not setfattr -n user.lease.width -v 2 "$MOUNT_A/q"
expect rmdir "$MOUNT_B/q"
expect logged "$LOG_A" "no common order"
says A 'acquire("named")' ok
says A 'os.rename(path("named"), path("other"))' EOPNOTSUPP
expect logged "$LOG_A" "cannot be renamed"
says A 'rm("named")' ok
says A 'record(f, "SETLK", "WRLCK", 0, 10)' ok
says B 'g = op("handle", "RDWR|CREAT"); record(g, "SETLK", "WRLCK", 20, 10)' '@(EAGAIN|EACCES)'
says A 'record(f, "SETLK", "UNLCK", 0, 10)' ok
says B 'record(g, "SETLK", "WRLCK", 20, 10)' ok
says B 'close(g)' ok
says A 'close(f)' ok

limit() { redis_cli CONFIG SET maxmemory "$limit" >/dev/null; }
it "three whose memory is full grant nothing new, keep what is held, and the log and the status name them"
says A 'acquire("before")' ok
limit=1 each limit 0 1 2
says A 'acquire("full")' ENOSPC
expect eventually 5 grep -q "error: the Redis server 127.0.0.1:${redis_ports[0]}: the server's memory is full" "$LOG_A"
expect grep -q "^warning: 127.0.0.1:${redis_ports[1]}: the server's memory is full" "$MOUNT_A/.leasefs/status"
says A 'rm("before")' ok
limit=0 each limit 0 1 2
locks_work full

it "any two may be killed: what is held stays held, and locks go round; back and empty they are given it again"
says A 'h = op("held", "RDWR|CREAT"); flock(h, "EX")' ok
token=$(attribute held token)
expect eventually 5 keys held 5
for pair in "0 1" "2 4"; do
    # shellcheck disable=SC2086 # two words
    each redis_kill $pair
    locks_work killed
    expect_not flock -n "$MOUNT_B/held" true
    # shellcheck disable=SC2086
    each redis_again $pair
    expect eventually 10 keys held 5
    expect eventually 20 votes 5
done
expect_is "$(attribute held token)" "$token"
says A 'read(h, 1)' "*"
expect test -z "$(grep -i ' lost' "$LOG_A" | grep -v 'connection lost')"

it "any two may stand still"
each redis_pause 1 3
locks_work paused
expect_not flock -n "$MOUNT_B/held" true
each redis_resume 1 3
says A 'flock(h, "UN"); close(h)' ok
expect eventually 20 votes 5
expect eventually 10 keys held 0
locks_work resumed

it "tokens grow, also when two of the servers that knew the last have forgotten it"
says A 'acquire("token")' ok
before=$(attribute token token)
says A 'rm("token")' ok
each redis_kill 0 1
each redis_again 0 1
expect eventually 20 votes 5
says B 'acquire("token")' ok
expect test "$(attribute token token)" -gt "$before"
says B 'rm("token")' ok

it "two that come back empty give nobody what a holder still believes in, when the others have gone"
each redis_kill 3 4
mount_backend "$SERVERS" "ttl=$TTL"
cut=$MNT
expect eventually 20 touch "$cut/believed" # on 0, 1 and 2, when it has seen that they are old enough
kill -9 "$DAEMON"
each redis_kill 1 2
each redis_again 1 2 3 4
expect_not touch "$MOUNT_A/believed" 2>/dev/null
expect_not flock -n "$MOUNT_B/believed" true 2>/dev/null
expect eventually 20 votes 5
locks_work believed
umount -l "$cut"
MNT=$MOUNT_A

it "when three are gone nothing hangs: ENOLCK and EIO, and what is held is lost; with them all goes on"
says A 'h = op("held", "RDWR|CREAT"); flock(h, "EX")' ok
says B 'g = op("held", "RDONLY")' ok
tell B 'flock(g, "EX")'
expect eventually 10 on "$MOUNT_B" waiters held 1
each redis_kill 0 1
each redis_pause 2
T=$SECONDS
says A 'acquire("new")' '@(ENOLCK|EIO)'
expect_not timeout 20 ls "$MOUNT_A" >/dev/null 2>&1
expect_not timeout 20 flock -n "$MOUNT_A/other" true 2>/dev/null
expect_between 0 $((SECONDS - T)) 20 "seconds"
expect eventually 20 answers A 'read(h, 1)' ESTALE
redis_use 2
redis_resume
each redis_again 0 1
expect_is "$(hear B)" ok
says B 'flock(g, "UN"); close(g)' ok
says A 'flock(h, "UN"); close(h)' ok
expect eventually 20 votes 5
locks_work again

# When the key ends on three of the servers, as they say now: before that nobody else may have the lock.
runs_out() { # NAME
    local server
    for server in 0 1 2 3 4; do
        redis_use "$server"
        now
        echo $((NOW + $(redis_cli PTTL "$1")))
    done | sort -n | sed -n 3p
}
waited_until() { # TIME, in hundredths of a second
    now
    expect test "$NOW" -ge $(($1 - 10))
}

# --- other clients ---

client() { # NAME COMMAND…
    local name=$1
    shift
    partner C "$@"
    it "$name holds: the file is there on both mounts, and refused"
    says C "acquire $name 60000" held
    expect exists "$name"
    expect on "$MOUNT_B" exists "$name"
    expect_not touch "$MOUNT_A/$name" 2>/dev/null
    expect_not flock -n "$MOUNT_B/$name" true
    tell A "f = op('$name', 'RDONLY'); flock(f, 'EX')"
    expect eventually 10 waiters "$name" 1
    says C "extend 50000" ok
    says C release ok
    expect_is "$(hear A)" ok
    it "a mount holds: $name is refused, and waits"
    says C "acquire $name 5000" refused
    tell C "wait $name 5000 30"
    says A "flock(f, 'UN')" ok
    expect_is "$(hear C 30)" held
    says A "flock(f, 'EX|NB')" EAGAIN
    says C release ok
    says A "close(f)" ok
    it "$name is killed: a mount has the lock when its time is over, and not before"
    says C "acquire $name 2000" held
    end_actor C
    over=$(runs_out "$name")
    expect flock -w 20 "$MOUNT_A/$name" true
    waited_until "$over"
    it "a mount is killed: $name has its lock when its time is over, and not before"
    mount_backend "$SERVERS" "ttl=$TTL"
    cut=$MNT
    expect eventually 10 touch "$cut/$name"
    partner C "$@"
    kill -9 "$DAEMON"
    over=$(runs_out "$name")
    says C "wait $name 5000 15" held
    waited_until "$over"
    says C release ok
    expect eventually 10 keys "$name" 0 # the mount's, too, where it has had more time
    umount -l "$cut"
    MNT=$MOUNT_A
    it "$name and a mount exclude each other while two servers are away"
    each redis_kill 0 4
    says C "acquire $name 20000" held
    expect_not flock -n "$MOUNT_A/$name" true
    says C release ok
    says A "acquire('$name')" ok
    says C "acquire $name 5000" refused
    says A "rm('$name')" ok
    end_actor C
    each redis_again 0 4
    expect eventually 20 votes 5
}

if "$PYTHON" -c 'import redis' 2>/dev/null; then
    client redlock-py "$PYTHON" "$INTEROP/client_redlock_py.py" "${ports%,}"
else
    skip redlock-py "no redis-py (package python3-redis)"
fi
modules=$TEST_DIR/npm
install_modules() { # as test_interop.sh does, and why what is not there is no failure
    command -v node >/dev/null && command -v npm >/dev/null || return 1
    mkdir "$modules"
    cp "$INTEROP/package.json" "$INTEROP/package-lock.json" "$modules"
    (cd "$modules" && timeout 60 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1) >"$TEST_DIR/npm.log" 2>&1
}
if install_modules; then
    for name in redlock4 redlock5; do client "$name" node "$INTEROP/client_npm.js" "$name" "${ports%,}" "$modules"; done
else
    say "SKIP redlock4, redlock5: npm does not give them"
fi

# --- a history ---

# Each says when two are inside.
go_round() { # MOUNTPOINT UNTIL
    while [ "$SECONDS" -lt "$2" ]; do
        timeout 40 flock -w 30 "$1/round" bash -c '
            mkdir "$1/inside" || echo >>"$1/overlaps"
            sleep 0.0$((RANDOM % 4))
            rmdir "$1/inside"
            echo >>"$1/rounds"' _ "$TEST_DIR" 2>>"$TEST_DIR/round.err" || sleep 0.1
    done
}
rounds() { wc -l <"$TEST_DIR/rounds"; }

it "two servers whose addresses are exchanged are there again"
front() { # NAME PORT SERVER: a proxy on that port (0: any) before this server; FRONT
    partner "$1" "$PYTHON" -S -E "$E2E_DIR/../proxy.py" --ids --listen "$2" --to "127.0.0.1:${redis_ports[$3]}"
    FRONT=$(ask "$1" port)
    [[ $FRONT =~ ^[0-9]+$ ]] || { say "the proxy did not start: $FRONT"; exit 1; }
}
front one 0 0
one=$FRONT
front two 0 1
two=$FRONT
mount_backend "redlock://127.0.0.1:$one,127.0.0.1:$two,127.0.0.1:${redis_ports[2]}" "ttl=$TTL"
all_there() { grep -q '^servers: 3, 3 of them there' "$MNT/.leasefs/status"; }
expect eventually 10 all_there
end_actor one
end_actor two
front one "$one" 1
front two "$two" 0
expect eventually 20 all_there
expect touch "$MNT/exchanged"
expect rm "$MNT/exchanged"

it "six processes on two mounts never hold together, while servers are killed, stopped and started anew empty"
: >"$TEST_DIR/rounds"
: >"$TEST_DIR/overlaps"
end=$((SECONDS + 40)) pids=()
for i in 1 2 3; do
    for mount in "$MOUNT_A" "$MOUNT_B"; do
        go_round "$mount" "$end" &
        pids+=("$!")
        started+=("$!")
    done
done
while [ "$SECONDS" -lt $((end - 8)) ]; do
    read -r first second < <(shuf -e 0 1 2 3 4 -n 2 | tr '\n' ' '; echo)
    if [ $((RANDOM % 2)) = 0 ]; then
        each redis_kill "$first" "$second"
        sleep 0.5
        each redis_again "$first" "$second"
        eventually 10 votes 5
    else
        each redis_pause "$first" "$second"
        sleep 1
        each redis_resume "$first" "$second"
        sleep 0.5
    fi
done
wait "${pids[@]}"
say "$(rounds) rounds"
expect test "$(rounds)" -gt 50
expect_is "$(wc -l <"$TEST_DIR/overlaps")" 0
finish
