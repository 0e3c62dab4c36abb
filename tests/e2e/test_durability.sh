#!/bin/bash
# Durability: kill -9 of the daemon at any moment, then the same directory again.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

STORE=$TEST_DIR/store
mkdir -m 700 "$STORE"

# The same mount point again, so that the actors find it.
remount() { # [OPTIONS]
    local point=$MNT
    crash "$point"
    mount_at "$point" "local:$STORE" "${1:-}"
}

mount_local "$STORE" ttl=20
actor A
actor B

it "after kill -9 and a start on the same directory a lease is there with token, content, owner, deadline"
says A 'acquire("kept", "content\n")' ok
says A 'os.mkdir(path("dir")); acquire("dir/inner", "in")' ok
says A 'acquire("empty"); ln("to/where", "link")' ok
says B 'acquire("bs")' ok
says A 'put("kept", "ttl", "15s")' ok
# a wall clock time is computed from CLOCK_BOOTTIME, by the difference of the two clocks: a few milliseconds may come in
near() { # SECONDS SECONDS
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 0.005 && d > -0.005) }'
}
token=$(attribute kept token) owner=$(attribute kept owner) acquired=$(date -d "$(attribute kept acquired)" +%s.%N) kind=$(attribute kept kind)
mtime=$(stat -c %.3Y "$MNT/kept") mode=$(stat -c %a "$MNT/kept")
left=$(remaining kept)
now
T=$NOW
remount ttl=20
expect exists kept
expect_is "$(attribute kept token)" "$token" token
expect_is "$(attribute kept owner)" "$owner" owner
expect near "$(date -d "$(attribute kept acquired)" +%s.%N)" "$acquired"
expect_is "$(attribute kept kind)" "$kind" kind
expect_is "$(cat "$MNT/kept")" content
expect_is "$(stat -c %a "$MNT/kept")" "$mode" mode
expect near "$(stat -c %.3Y "$MNT/kept")" "$mtime"
now
expect_between $((left - (NOW - T) - 100)) "$(remaining kept)" $((left - (NOW - T) + 200)) "milliseconds left"
expect_is "$(cat "$MNT/dir/inner")" in
expect exists empty
expect_is "$(readlink "$MNT/link")" to/where

it "its owner still owns it: others are refused, the owner releases"
says B 'acquire("kept")' EEXIST
says B 'rm("kept")' EPERM
says B 'rm("dir/inner")' EPERM
says A 'rm("bs")' EPERM
says A 'child("rm(\"kept\")")' ok
says A 'rm("dir/inner"); os.rmdir(path("dir")); rm("empty"); rm("link")' ok
says B 'rm("bs")' ok

it "a lease whose release was confirmed does not come back"
remount ttl=20
expect_is "$(ls -A "$MNT")" ""

it "a later grant of the name has a larger token than any before the restart"
says B 'acquire("kept")' ok
expect [ "$(attribute kept token)" -gt "$token" ]

it "a directory persists, with its ttl, owner and mode"
says A 'os.mkdir(path("d")); os.mkdir(path("d/e")); os.chmod(path("d"), 0o1777); os.chown(path("d"), 12, 34)' ok
says A 'put("d", "ttl", "7s")' ok
remount ttl=20
expect_is "$(stat -c %a:%u:%g "$MNT/d")" 1777:12:34
expect_is "$(milliseconds "$(attribute d ttl)")" 7000
expect [ -d "$MNT/d/e" ]

it "what was set on a lease is kept: mode, times, content, fixed ttl"
says A 'acquire("set", "one"); os.chmod(path("set"), 0o640); utime("set", 1000000000)' ok
says A 'put("set", "ttl", "60s")' ok
remount ttl=20
expect_is "$(stat -c %a:%Y "$MNT/set")" 640:1000000000
expect_is "$(milliseconds "$(attribute set ttl)")" 60000
expect_is "$(cat "$MNT/set")" one
says A 'rm("set")' ok

it "times of any year are shown as they were set, also by the next daemon"
years=(-3000000000000000000 -1000000000 500000000 9300000000000000001 1099511627776000000000 -1099511627776000000000) # ns
says A 'os.mkdir(path("years"))' ok
for i in "${!years[@]}"; do says A "acquire('years/$i')" ok; done
shown() { (cd "$MNT/years" && stat -c %.9Y -- *) | tr '\n' ' '; }
says A "os.utime(path('years'), (1099511627776, 1099511627776))" ok
for i in "${!years[@]}"; do says A "os.utime(path('years/$i'), ns=(${years[i]}, ${years[i]}))" ok; done
expect_is "$(shown)" "-3000000000.000000000 -1.000000000 0.500000000 9300000000.000000001 1099511627776.000000000 -1099511627776.000000000 "
expect_is "$(stat -c %Y "$MNT/years")" 1099511627776
remount ttl=20
expect_is "$(shown)" "-3000000000.000000000 -1.000000000 0.500000000 9300000000.000000001 1099511627776.000000000 -1099511627776.000000000 "
for i in "${!years[@]}"; do says A "rm('years/$i')" ok; done
says A 'os.rmdir(path("years"))' ok

it "a fixed term that passes while the daemon is away has passed when it is back"
says A 'acquire("passes"); put("passes", "ttl", "500ms")' ok
says A 'acquire("stays"); put("stays", "ttl", "30s")' ok
now
T=$NOW
point=$MNT
crash "$point"
until_time $((T + 700))
mount_at "$point" "local:$STORE" ttl=20
expect absent passes
expect exists stays

it "after a restart the lease of a living owner is renewed, that of a dead one runs out"
point=$MNT
crash "$point"
mount_at "$point" "local:$STORE" ttl=2
actor C
says A 'acquire("living")' ok
says C 'acquire("dying")' ok
pause 1.2
crash "$point"
end_actor C
mount_at "$point" "local:$STORE" ttl=2
expect eventually 6 absent dying
expect constantly 3000 exists living
says A 'rm("living")' ok

it "a provisional lease does not survive"
says A 'f = op("prov")' ok
expect exists prov
remount ttl=20
expect absent prov
says A 'f = None' ok

it "a clean end and a start keep leases too"
says A 'acquire("clean", "c")' ok
unmount "$MNT"
mount_at "$MNT" "local:$STORE" ttl=20
expect_is "$(cat "$MNT/clean")" c
says A 'rm("clean")' ok
crash "$MNT"

seed=${E2E_SEED:-$RANDOM}
RANDOM=$seed
for round in {1..8}; do
    it "killed at any moment (round $round): what was confirmed is there, what was released is not, tokens grow"
    say "seed $seed"
    store=$TEST_DIR/churn$round
    mkdir -m 700 "$store"
    mount_local "$store" "ttl=60$( ((round % 4)) || echo ,sync=always)"
    mkfifo "$TEST_DIR/churn$round.in"
    "$PYTHON" -S -E "$E2E_DIR/churn.py" "$MNT" "$TEST_DIR/churn$round.log" $((seed + round)) 50 \
        <>"$TEST_DIR/churn$round.in" 2>/dev/null &
    owner=$!
    started+=("$owner")
    expect eventually 10 [ -s "$TEST_DIR/churn$round.log" ]
    pause "0.$((RANDOM % 6 + 1))$((RANDOM % 10))"
    crash "$MNT"
    expect eventually 10 grep -q ended "$TEST_DIR/churn$round.log"
    mount_local "$store" ttl=60
    expect "$PYTHON" -S -E "$E2E_DIR/churn_check.py" "$MNT" "$TEST_DIR/churn$round.log" "$owner"
    say "$(wc -l <"$TEST_DIR/churn$round.log") lines in its journal"
    end_process "$owner"
    unmount "$MNT"
done

it "a torn tail is cut off, said, and what was before it is there"
store=$TEST_DIR/torn
mkdir -m 700 "$store"
mount_local "$store" ttl=60
actor T
says T 'acquire("before", "b")' ok
expect_is "$(cat "$MNT/before")" b
crash "$MNT"
biggest=$(find "$store" -type f -size +0 -printf '%s %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
say "journal: ${biggest##*/}, $(stat -c %s "$biggest") bytes"
# as if the machine had stopped in the middle of the next record
printf '\060\000\000\000\001' >>"$biggest"
mount_local "$store" ttl=60
expect_is "$(cat "$MNT/before")" b
expect [ -s "$LOG" ]
say "log: $(head -3 "$LOG")"
end_actor T
actor T
says T 'acquire("after")' ok
unmount "$MNT"

it "a flipped bit with good records behind it stops the start, and the message tells the offset"
says A 'None' ok
store=$TEST_DIR/flipped
mkdir -m 700 "$store"
mount_local "$store" ttl=60
actor F
says F '[acquire("f%d" % i, "x" * 100) for i in range(50)] and None' ok
crash "$MNT"
biggest=$(find "$store" -type f -size +0 -printf '%s %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
size=$("$PYTHON" -c 'import sys; print(len(open(sys.argv[1], "rb").read().rstrip(b"\0")))' "$biggest") # zeros may follow
"$PYTHON" -c 'import sys
f = open(sys.argv[1], "r+b"); f.seek(int(sys.argv[2])); b = f.read(1); f.seek(-1, 1); f.write(bytes([b[0] ^ 4]))' \
    "$biggest" $((size / 2))
new_mountpoint
status=0
timeout 20 "$LEASEFS" -f "local:$store" "$MNT" >"$TEST_DIR/flip.out" 2>&1 || status=$?
expect [ "$status" -ne 0 ] && expect [ "$status" -ne 124 ]
expect_is "$(wc -l <"$TEST_DIR/flip.out")" 1 "lines of the message"
expect_re "$(cat "$TEST_DIR/flip.out")" '[0-9]+' "the message"
say "$(cat "$TEST_DIR/flip.out")"

it "a store that is removed under its mount grants nothing more, and says so, while another mount has its path"
removed=$TEST_DIR/removed
mount_local "$removed" ttl=20
first=$MNT log=$LOG
actor C
says C 'acquire("L")' ok
says C 'f = op("f", "RDONLY|CREAT")' ok
expect rm -r "$removed"
mount_local "$removed" ttl=20
expect touch "$MNT/new" "$MNT/f"
MNT=$first
says C 'acquire("new")' ENOLCK
says C 'flock(f, "EX|NB")' ENOLCK
says C 'os.mkdir(path("d"))' ENOLCK
says C 'rm("L")' ok
expect_is "$(grep -c "$removed was removed or replaced" "$log")" 1
expect_is "$(grep -E '^(state|reason):' "$first/.leasefs/status" | tr '\n' ' ')" "state: away reason: $removed was removed or replaced "
end_actor C

it "a journal that is cut under its mount grants no new lock, and the daemon does not crash"
store=$TEST_DIR/cut
for length in 0 4096; do
    mkdir -m 700 "$store"
    mount_local "$store" ttl=20
    actor C
    says C '[acquire("f%d" % i, "x" * 100) for i in range(50)] and None' ok
    says C 'f = op("f", "RDONLY|CREAT")' ok
    expect truncate -s $length "$store/journal"
    says C '[acquire("g%d" % i, "x" * 5000) for i in range(100)] and None' ENOLCK
    says C 'acquire("h")' ENOLCK
    says C 'rm("f0")' ok
    expect absent f0
    expect exists f1
    expect_is "$(grep -c "$store/journal: Input/output error: no new lock is granted" "$LOG")" 1
    expect_is "$(grep -vc sandbox "$LOG")" 1 "lines of the log"
    expect_is "$(sed -n 's/^state: //p' "$MNT/.leasefs/status")" away
    end_actor C
    unmount "$MNT"
    rm -r "$store"
done

it "a full disk refuses new leases and handle locks with ENOSPC, by whatever call"
disk=$TEST_DIR/disk
mkdir "$disk"
expect mount -t tmpfs -o size=1m,mode=700 tmpfs "$disk"
STORE=$disk/store
mount_local "$STORE" ttl=4s
actor D
says D 'acquire("kept"); acquire("termed"); acquire("released"); os.mkdir(path("dir"))' ok
says D '[acquire("f%d" % i, "x" * 8000) for i in range(10000)]' ENOSPC
says D '[acquire("g%d" % i) for i in range(100000)]' ENOSPC
expect_not touch "$MNT/new" 2>/dev/null
expect_not sh -c ': >"$1"' _ "$MNT/new" 2>/dev/null
expect_not ln -s x "$MNT/new" 2>/dev/null
expect absent new
says D '[put("termed", "ttl", "%d" % (i + 1000)) for i in range(10000)]' ENOSPC
says D 'put("termed", "ttl", "auto")' '@(ok|ENOSPC)' # as it is answered, so it is after a crash
TERM=$(attribute termed ttl)
says D 'fd = op("kept", "WRONLY"); os.write(fd, b"x" * 9000)' ENOSPC
says D 'h = op("handle", "RDONLY|CREAT"); flock(h, "EX|NB")' ENOSPC
says D 'close(h)' ok
expect_re "$(cat "$MNT/.leasefs/status")" 'state: connected.*warning: .*the disk is full' "the status"

it "there what is held is renewed and released, also for the next daemon after kill -9"
now
T=$NOW
says D 'rm("released")' ok
until_time $((T + 9000))
expect exists kept
expect exists f0
remount ttl=4s
expect exists kept
expect exists f0
expect absent released
expect_is "$(attribute termed ttl)" "$TERM" "the term of a lease"
until_time $((T + 14000))
expect exists kept
expect exists termed

it "when there is room again leases are granted without a remount, and the journal shrinks with what was released"
says D '[rm(n) for n in os.listdir(BASE) if n[0] in "fg"][0]' '@(None|ok)'
expect eventually 5 touch "$MNT/new" 2>/dev/null
small() { [ "$(stat -c %s "$STORE/journal")" -lt 200000 ]; }
expect eventually 5 small
says D 'acquire("again", "x" * 8000)' ok
expect exists kept
end_actor D

finish
