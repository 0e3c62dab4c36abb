#!/bin/bash
# Two hosts, that is two mounts of one Redis server: what one holds is held, shown and refused at the other.
#
# Racing tools are twenty on each, as in test_race.sh: exactly one wins.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

ROUNDS=${E2E_ROUNDS:-20}
RACERS=20 # on each

redis_start
mount_two ttl=6s
A=$MOUNT_A B=$MOUNT_B
on "$A" actor a
on "$B" actor b

there() { on "$B" "$@"; }

# --- who gets it ---

it "a lease at one host is EEXIST at the other, and seen there at once"
says a 'acquire("lease", "content")' ok
expect there exists lease
says b 'acquire("lease")' EEXIST
says b 'ln("x", "lease")' EEXIST
says b 'hardlink("lease", "other")' EPERM
says b 'content("lease")' content
says b 'ls()' 'lease'

it "a write-open at the other host in the first second of a lease is EBUSY, later an idle handle"
says a 'acquire("young")' ok
says b 'op("young")' EBUSY
expect eventually 5 answers b 'f = op("young")' ok
says b 'write(f, "x")' EBUSY
says b 'utime(f)' EBUSY
says b 'flock(f, "EX|NB")' EAGAIN
says b 'close(f)' ok # a lock was asked for: it acquires nothing
says a 'rm("young")' ok

it "who was refused for a lease at the other host does not hold it a moment later, by closing"
for way in 'utime(f)' 'utime("refused")' 'write(f, "x")' 'truncate(f, 1)' 'close(os.dup(f))'; do
    says b 'f = op("refused")' ok
    expect eventually 4 absent refused
    says a 'acquire("refused")' ok
    says b "$way" EBUSY
    says a 'rm("refused")' ok
    says b 'close(f)' EBUSY
    expect constantly 100 absent refused
done

it "flock 9 in a script turns the script's own lease while the other host waits for it, which then gets it"
says b 'g = op("own", "RDONLY|CREAT")' ok
start timeout 20 bash -c 'set -C; exec 9>"$1"; : >"$2"; until [ -e "$3" ]; do sleep 0.02; done; flock 9 && : >"$4"; sleep 1' \
    sh "$A/own" "$TEST_DIR/made" "$TEST_DIR/queued" "$TEST_DIR/turned"
expect eventually 5 [ -e "$TEST_DIR/made" ]
tell b 'flock(g, "EX")'
expect eventually 5 eval '[ "$(attribute own waiters)" = 1 ]'
: >"$TEST_DIR/queued"
expect eventually 5 [ -e "$TEST_DIR/turned" ]
expect_is "$(attribute own kind)" flock
expect_is "$(hear b 5)" ok
says b 'close(g)' ok

it "a write-open at the other host waits for the outcome of the provisional second: EBUSY when it became a lease"
says a 'f = op("wait-lease")' ok
tell b 'op("wait-lease")'
pause 0.3
says a 'close(f)' ok
expect_is "$(hear b 5)" EBUSY

it "the same goes on when it was given back"
now
T=$NOW
says a 'f = op("wait-lapse")' ok
says b 'g = op("wait-lapse")' ok
now
expect_between 900 $((NOW - T)) $((1500 + SLACK)) "milliseconds of waiting"
says b 'close(g)' ok
expect constantly 1200 exists wait-lapse
says b 'rm("wait-lapse")' ok
expect absent wait-lapse

it "the same goes on with an idle handle when it became a flock"
says a 'f = op("wait-flock")' ok
tell b 'g = op("wait-flock")'
pause 0.2
says a 'flock(f, "EX|NB")' ok
expect_is "$(hear b 5)" ok
says b 'flock(g, "EX|NB")' EAGAIN
tell b 'flock(g, "EX")'
pause 0.2
says a 'flock(f, "UN")' ok
expect_is "$(hear b 5)" ok
says a 'flock(f, "EX|NB")' EAGAIN
says b 'close(g)' ok

it "kill -9 ends a wait for the outcome at the other host at once"
says a 'f = op("interrupt")' ok
start bash -c 'exec 9>"$1"; sleep 60' _ "$B/interrupt"
pause 0.2
now
T=$NOW
disown "$STARTED" # bash need not tell that it was killed
kill -9 "$STARTED"
expect eventually 3 gone "$STARTED"
now
expect_between 0 $((NOW - T)) 600 "milliseconds to die"
says a 'close(f)' ok
says a 'rm("interrupt")' ok

# --- what is shown of it ---

it "stat and the attributes of a lock are the same at both hosts"
says a 'acquire("shown", "twelve bytes")' ok
expect_is "$(stat -c '%s %a %U %G %F %h' "$B/shown")" "$(stat -c '%s %a %U %G %F %h' "$A/shown")"
for name in state kind mode owner token; do
    expect_is "$(there attribute shown "$name")" "$(attribute shown "$name")" "$name"
done
expect_between 0 $(($(stat -c %Y "$B/shown") - $(stat -c %Y "$A/shown") + 1)) 2 "difference of mtime, + 1"
expect_between 2000 "$(there remaining shown)" 6100 "milliseconds remaining"
expect_is "$(there attribute shown waiters)" 0
says a 'utime("shown", 981173106)' ok
expect_is "$(stat -c %Y "$B/shown")" 981173106

it "nothing of it is kept: content, size and existence are as they are at the other host"
says a 'f = op("shown", "WRONLY")' ok
says a 'write(f, "more than twelve bytes")' ok
expect_is "$(cat "$B/shown")" "more than twelve bytes"
expect_is "$(stat -c %s "$B/shown")" 22
says a 'close(f)' ok
says a 'rm("shown")' ok
expect there absent shown
expect_is "$(ls "$B")" "$(ls "$A")"

it "a ticket that waits is shown at the other host as waiting, with its place"
mkdir "$A/queue"
says a 'first = op("queue/job-", "RDWR|CREAT"); second = op("queue/job-", "RDWR|CREAT")' ok
shown_there() { [ "$(there attribute "queue/$1" state),$(there attribute "queue/$1" position)" = "$2" ]; }
expect shown_there job-0000000000 held,0
expect shown_there job-0000000001 waiting,1
says a 'close(first); rm("queue/job-0000000000")' ok
expect eventually 5 shown_there job-0000000001 held,0
says a 'close(second); rm("queue/job-0000000001")' ok
expect rmdir "$A/queue"

it "a symbolic link at one host is one at the other"
says a 'ln("the/target", "link")' ok
expect_is "$(readlink "$B/link")" the/target
expect test -L "$B/link"
says a 'rm("link")' ok
expect_not test -L "$B/link"

it "directories are the same at both hosts"
expect mkdir "$A/dir"
expect test -d "$B/dir"
says b 'os.mkdir(path("dir"))' EEXIST
expect setfattr -n user.lease.ttl -v 5m "$A/dir"
expect_is "$(there attribute dir ttl)" 300
says b 'acquire("dir/x")' ok
expect_is "$(ls "$A/dir")" x
expect_is "$(attribute dir/x ttl)" 300
says a 'os.rmdir(path("dir"))' ENOTEMPTY
says b 'rm("dir/x")' ok
expect rmdir "$A/dir"
expect_not test -e "$B/dir"
expect mkdir "$B/dir"
expect rmdir "$B/dir"

it "a key of a client that is no mount is a lock that anybody may wait for"
expect_is "$(redis_cli SET plain token-of-it NX PX 60000)" OK
expect exists plain
expect_is "$(stat -c '%U %G %a %s' "$A/plain")" "root root 666 0"
expect_is "$(attribute plain owner)" "[?] 0 0 [?]"
expect_between 50000 "$(remaining plain)" 60000 "milliseconds remaining"
expect_is "$(attribute plain token)" ""
says a 'acquire("plain")' EEXIST
says a 'rm("plain")' EPERM
says a 'f = op("plain")' ok
tell a 'flock(f, "EX")'
pause 0.3
expect_is "$(redis_cli DEL plain)" 1
expect_is "$(hear a 5)" ok
expect_is "$(redis_cli SET plain again NX PX 60000)" ""
says a 'close(f)' ok
expect eventually 5 absent plain

# --- what may be done to it ---

it "what is held at one host cannot be removed, renamed or changed at the other, by root neither"
says a 'acquire("theirs", "x")' ok
pause 1.1 # no longer in its first second
says b 'rm("theirs")' EPERM
says b 'mv("theirs", "mine")' EPERM
says b 'os.chmod(path("theirs"), 0o600)' EPERM
says b 'os.chown(path("theirs"), 1, 1)' EPERM
says b 'truncate("theirs", 0)' EPERM
says b 'utime("theirs")' EBUSY
says b 'put("theirs", "ttl", "1h")' EPERM
says b 'f = op("theirs", "WRONLY|TRUNC")' ok
says b 'truncate(f, 0)' EBUSY
says b 'close(f)' EBUSY
says b 'acquire("own")' ok
says b 'mv("own", "theirs")' EBUSY
expect_is "$(cat "$A/theirs")" x

it "a token is checked and released with at the other host"
token=$(there attribute theirs token)
says b "put('theirs', 'check', $token)" ok
says b "put('theirs', 'check', $((token + 1)))" ESTALE
says b "put('theirs', 'release', $((token + 1)))" ESTALE
says b "put('theirs', 'release', $token)" ok
expect eventually 2 absent theirs
says b "put('theirs', 'check', $token)" ENOENT

it "a lock is broken from the other host, and its holder learns of it"
says a 'f = op("broken", "RDWR|CREAT|EXCL")' ok
says a 'write(f, "x")' ok
says b 'put("broken", "break", "1")' ok
expect eventually 2 absent broken
says a 'read(f)' ESTALE
says a 'write(f, "y")' ESTALE
says a 'get(f, "state")' lost
says a 'close(f)' ok
expect grep -q "^[^:]*: warning: broken: the lock of .* was broken by" "$LOG_B"

it "fcntl locks exclude each other across hosts, and F_GETLK tells no pid of the other"
says a 'f = op("record", "RDWR|CREAT")' ok
says a 'record(f, "SETLK", "WRLCK", 10, 10)' ok
says b 'g = op("record", "RDWR")' ok
says b 'record(g, "SETLK", "WRLCK", 15, 10)' EAGAIN
says b 'record(g, "SETLK", "WRLCK", 20, 10)' ok
says b 'record(g, "GETLK", "RDLCK")' 'WRLCK 10 10 [-0-9]*'
says b 'record(g, "GETLK", "RDLCK", ofd=True)' 'WRLCK 10 10 -1'
says a 'close(f)' ok
says b 'record(g, "SETLK", "WRLCK")' ok
says b 'close(g)' ok

it "waiters of both hosts are served in the order of asking"
says a 'f = op("fifo", "RDWR|CREAT"); flock(f, "EX")' ok
rm -f "$TEST_DIR/served"
pids=()
for i in 1 2 3 4 5 6; do
    mount=$A
    [ $((i % 2)) -eq 0 ] && mount=$B
    start flock "$mount/fifo" sh -c 'echo "$1" >>"$2"' sh "$i" "$TEST_DIR/served"
    pids+=("$STARTED")
    expect eventually 5 waiters fifo "$i"
done
says a 'close(f)' ok
for pid in "${pids[@]}"; do wait "$pid"; done
expect_is "$(tr '\n' ' ' <"$TEST_DIR/served")" "1 2 3 4 5 6 "

it "a host that dies leaves its leases until their time has run out"
says b 'acquire("crashed")' ok
crash "$B"
expect exists crashed
expect eventually 12 absent crashed

# --- racing tools ---

mount_redis ttl=6s
B=$MNT MNT=$A
READY=$TEST_DIR/ready GATE=$TEST_DIR/gate RACER=$E2E_DIR/racer GNU_TOUCH=/usr/bin/touch UUTILS_TOUCH=
for candidate in /usr/lib/cargo/bin/coreutils/touch /usr/lib/cargo/bin/touch; do
    [ -x "$candidate" ] && UUTILS_TOUCH=$candidate && break
done
export GNU_TOUCH UUTILS_TOUCH PYTHON RACER READY GATE
mkfifo "$READY" "$GATE"
exec {ready}<>"$READY"
mkdir "$TEST_DIR/said"

# race LOCK TOOL…: RACERS on each host at once; sets WINNERS, and TOOK in milliseconds.
race() {
    local lock=$1 i pids=() mount
    shift
    local tools=("$@")
    rm -f "$TEST_DIR"/said/*
    for ((i = 0; i < 2 * RACERS; i++)); do
        mount=$A
        [ $((i % 2)) -eq 0 ] || mount=$B
        "$RACER" "${tools[i / 2 % ${#tools[@]}]}" "$mount/$lock" "$READY" "$GATE" >"$TEST_DIR/said/$i" 2>&1 &
        pids+=("$!")
        started+=("$!")
    done
    for ((i = 0; i < 2 * RACERS; i++)); do
        read -r -t 30 _ <&"$ready" || { say "only $i contenders came to the gate"; break; }
    done
    now
    TOOK=$NOW
    exec {gate}<>"$GATE" # opens the gate, and leaves it open for who has not come to it yet
    for i in "${pids[@]}"; do
        wait "$i" 2>/dev/null
        [ $? -lt 126 ] || fail "a contender could not be started, or was killed"
    done
    exec {gate}>&-
    now
    TOOK=$((NOW - TOOK))
    WINNERS=0
    for ((i = 0; i < 2 * RACERS; i++)); do
        [ -s "$TEST_DIR/said/$i" ] || WINNERS=$((WINNERS + 1))
    done
    return 0
}

# uutils' touch fails only if its open fails, and the open is refused only in the first second of another's lease.  So a
# round that took longer may have several winners: for each of them touch succeeded, but only one has the lock.
# The clock is read in hundredths.
may_have_several() { [ "$WINNERS" -gt 1 ] && [ "$TOOK" -ge 980 ] && [[ " $* " == *" uutils "* ]]; } # TOOL…

remove() { rm -f "$A/$1" 2>/dev/null || rm -f "$B/$1"; }

rounds() { # NAME TOOL…
    local name=$1 round
    shift
    for ((round = 1; round <= ROUNDS; round++)); do
        while race "$name$round" "$@" && may_have_several "$@" && remove "$name$round"; do
            say "round $round took $TOOK ms and had $WINNERS winners: once more"
        done
        if [ "$WINNERS" -eq 1 ] && exists "$name$round" && on "$B" exists "$name$round"; then
            pass
        else
            fail "round $round: $WINNERS winners"
            head -3 "$TEST_DIR"/said/* | sed 's/^/# /' | head -130
        fi
        remove "$name$round" || fail "round $round: the script's rm failed"
    done
}

it "GNU touch, twenty on each host: exactly one wins each round"
rounds gnu gnu
it "busybox touch, twenty on each host: exactly one wins each round"
rounds busybox busybox
if [ -n "$UUTILS_TOUCH" ]; then
    it "uutils touch, twenty on each host: exactly one wins each round"
    rounds uutils uutils
else
    skip "uutils touch, twenty on each host: exactly one wins each round" "no rust-coreutils"
fi
it "all tools mixed, twenty on each host: exactly one wins each round"
rounds mixed gnu ${UUTILS_TOUCH:+uutils} busybox python-touch-ok noclobber noclobber-bash ln

# --- the server is away ---

it "what a host holds is seen there while the server is away; all else is EIO or ENOLCK, never missing"
says a 'acquire("held")' ok
says a 'f = op("handle", "RDWR|CREAT"); flock(f, "EX")' ok
says a 'g = op("free", "RDONLY|CREAT")' ok
redis_pause
ASK_LIMIT=60
says a 'exists("held")' True
says a 'stat("held", "size")' 0
says a 'utime("held")' ok
says a 'get("held", "state")' held
says a 'os.stat(path("unheard-of"))' EIO
says a 'ls()' EIO
says a 'acquire("new")' EIO # by its look-up
says a 'flock(g, "EX|NB")' ENOLCK
redis_resume
expect eventually 20 answers a 'exists("unheard-of")' False

finish
