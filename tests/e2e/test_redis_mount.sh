#!/bin/bash
# Mounting a Redis server as leasefs-redis(7) says it: who may, what the keys are called, what is said of a server that is
# not as it should be, and a server that is away.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

manual=$E2E_DIR/../../man/leasefs-redis.7
password='a:b c'
credentials=$TEST_DIR/credentials

# The manual's ACL SETUSER for the user leasefs, as words in ACL.
manual_acl() {
    local text
    text=$(sed -n '/^ACL SETUSER leasefs/,/^\.Ed/{/^\.Ed/d;p}' "$manual")
    read -r -d '' -a ACL <<<"$text"
    ACL=("${ACL[@]/#>PASSWORD/>$password}")
}

# The mount fails, with one line that has WORD in it and not the password.
refused() { # WORD BACKEND [OPTIONS]
    local status=0
    new_mountpoint
    timeout 20 "$LEASEFS" ${3:+-o "$3"} "$2" "$MNT" >"$TEST_DIR/refused" 2>&1 </dev/null || status=$?
    expect_is "$status" 1 "exit status"
    expect_is "$(wc -l <"$TEST_DIR/refused")" 1 "lines"
    expect grep -qF -e "$1" "$TEST_DIR/refused"
    expect_not grep -qF -e "$password" "$TEST_DIR/refused"
    say "$(cat "$TEST_DIR/refused")"
}

waits() { [ "$(attribute waited waiters)" = 1 ]; }

redis_start --appendonly yes
manual_acl
redis_cli "${ACL[@]}" >/dev/null
(umask 077 && printf 'leasefs:%s\n' "$password" >"$credentials")

it "the manual's user may do all that locks need"
mount_redis "prefix=app:,credentials=$credentials,ttl=2"
expect_not grep -rqF -e "$password" "$LOG" "/proc/$DAEMON/cmdline" /proc/self/mountinfo
expect touch "$MNT/lease"
expect ln -s content "$MNT/link"
expect mkdir "$MNT/queue"
expect flock "$MNT/handle" true
actor A
actor B
says A 'f = op("waited"); flock(f, "EX")' ok
tell B 'f = op("waited"); flock(f, "EX")'
expect eventually 10 waits
says A 'flock(f, "UN")' ok
expect_is "$(hear B)" ok
says A 'f = op("ranges"); record(f, "SETLK", "WRLCK", 0, 10)' ok
says A 't = op("queue/job-", "RDWR|CREAT")' ok
expect_is "$(ls "$MNT/queue")" 'job-*'
expect mv "$MNT/lease" "$MNT/moved"
expect rm "$MNT/moved" "$MNT/link"
expect_not exists moved
end_actor A
end_actor B
expect eventually 10 rmdir "$MNT/queue"
expect_is "$(redis_cli ACL LOG)" "" "what the server refused"

it "keys begin with the prefix, and side keys with lfs:"
touch "$MNT/named"
expect redis_key app:named
expect_is "$(redis_cli KEYS '*' | grep -v -e '^app:' -e '^lfs:')" "" "other keys"
redis_cli SET app:foreign token PX 60000 >/dev/null
expect exists foreign
expect_not touch "$MNT/foreign" 2>/dev/null
unmount "$MNT"

it "key= makes the key of another program's lock"
refused 'ACL SETUSER leasefs ~lock:*:mutex' "$REDIS_URI" "key=lock:{n}:mutex,credentials=$credentials"
mount_redis 'prefix=other:,key=lock:{n}:mutex'
touch "$MNT/job"
expect redis_key other:lock:job:mutex
unmount "$MNT"

it "braces in keys are as good as other characters"
mount_redis 'prefix={},key=a}{{n}}'
expect touch "$MNT/tagged" "$MNT/a}b"
expect redis_key '{}a}{tagged}'
expect redis_key '{}a}{a}b}'
unmount "$MNT"

it "a mount over a Unix socket, with a database"
mount_backend "$REDIS_UNIX_URI?db=3"
touch "$MNT/there"
expect_is "$(redis_cli -n 3 EXISTS there)" 1
unmount "$MNT"

it "a user with too few permissions is told those that are missing"
redis_cli ACL SETUSER leasefs -zadd -publish >/dev/null
refused "ACL SETUSER leasefs +zadd +publish" "$REDIS_URI" "prefix=app:,credentials=$credentials"
refused "~*" "$REDIS_URI" "credentials=$credentials"
redis_cli ACL SETUSER leasefs +zadd +publish >/dev/null

it "a wrong password is told, and is not shown"
password=wrong-word
(umask 077 && printf 'leasefs:%s\n' "$password" >"$credentials.wrong")
refused "does not know this user with this password" "$REDIS_URI" "credentials=$credentials.wrong"

it "a server that may lose locks is mounted with warnings"
redis_cli CONFIG SET maxmemory 100mb >/dev/null
redis_cli CONFIG SET maxmemory-policy volatile-lru >/dev/null
redis_cli CONFIG SET appendonly no >/dev/null
mount_redis
expect grep -q 'warning.*maxmemory-policy volatile-lru' "$LOG"
expect grep -q 'warning.*appendonly yes' "$LOG"
unmount "$MNT"
redis_cli CONFIG SET maxmemory-policy noeviction >/dev/null
redis_cli CONFIG SET appendonly yes >/dev/null
mount_redis
expect_is "$(grep warning "$LOG" | grep -v 'built with sanitizers')" "" warnings
unmount "$MNT"

it "a server whose memory is full refuses new locks, keeps those that are held, and the log and the status say so"
mount_redis
expect touch "$MNT/before"
redis_cli CONFIG SET maxmemory 1 >/dev/null
expect_is "$(touch "$MNT/full" 2>&1)" "*No space left on device"
expect eventually 5 grep -q 'error: .*refuses a lock.*memory is full (maxmemory)' "$LOG"
expect grep -q '^warning: .*memory is full (maxmemory)' "$MNT/.leasefs/status"
expect rm "$MNT/before"
redis_cli CONFIG SET maxmemory 100mb >/dev/null
expect touch "$MNT/full"
expect rm "$MNT/full"
unmount "$MNT"

# cycles MOUNTPOINT N: takes a lock and gives it back N times.
cycles() {
    "$PYTHON" -S -E -c 'import os, sys
for _ in range(int(sys.argv[2])):
    os.close(os.open(sys.argv[1] + "/told", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(sys.argv[1] + "/told")' "$1" "$2"
}

trips() { awk '$1 == "leasefs_backend_round_trips_total" { print $2 }' "$1/.leasefs/metrics"; }

cycle_takes() { # MOUNTPOINT TRIPS
    local before
    cycles "$1" 2
    before=$(trips "$1")
    cycles "$1" 20
    [ $(($(trips "$1") - before)) = $((20 * $2)) ]
}

it "a cycle takes three round trips"
mount_redis
expect eventually 30 cycle_takes "$MNT" 3
unmount "$MNT"

it "a server that does not answer is given up"
redis_pause
refused "no answer within 100 ms" "$REDIS_URI" command_timeout=100ms
redis_resume

it "with background it is mounted while the server is away, and used once it is there"
redis_stop
refused "Connection refused" "$REDIS_URI"
mount_redis background,timeout=200ms
expect_not touch "$MNT/away" 2>/dev/null
redis_again
# what the server has is of another life: it grants nothing for the longest term that was in use, up to half a minute
expect eventually 60 touch "$MNT/away" 2>/dev/null
expect redis_key away
unmount "$MNT"

finish
