#!/bin/bash
# leaserun(1) without a command: holders and waiters (--status), leases that no process owns (--get, --put), and the
# table of a mount (--top).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
mount_memory ttl=30
actor A
actor B

# json EXPRESSION: of what --json told, as Python has it in `s`.
json() { "$PYTHON" -c 'import json, os, sys; s = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$OUT" "$1" 2>&1; }
shows() {
    local is
    is=$(json "$1")
    if [ "$is" = "$2" ]; then pass; else fail "$1: got $is, not $2"; fi
}

it "a free lock: it says so, with status 1, and there is still none"
gives 1 --status "$MNT/a"
said "^$MNT/a: free\$"
gives 1 --status --json "$MNT/a"
shows 's["name"], s["held"], s["holders"], s["waiters"], s["waiting"], s["token"]' "('$MNT/a', False, [], 0, [], None)"
expect absent a

it "a held lock: kind, mode, token, since when, for how long, and who, with status 0"
says A 'acquire("a")' ok
gives 0 --status "$MNT/a"
said "^$MNT/a: held\$"
said '^  kind: lease$'
said '^  mode: exclusive$'
said "^  token: $(attribute a token)\$"
said '^  since: 20[0-9-]*T[0-9:.]*Z$'
said '^  left: (29|30)\.[0-9]* s$'
said "^  holder: pid ${actor_pid[A]} \\(python3.*\\) of uid 0 on $(uname -n) since"
said '^  waiters: 0$'
gives 0 --json --status "$MNT/a"
shows 's["kind"], s["mode"], s["ttl"], s["token"]' "('lease', 'exclusive', 30, $(attribute a token))"
shows 's["holders"][0]["pid"], s["holders"][0]["uid"], s["holders"][0]["host"]' "(${actor_pid[A]}, 0, '$(uname -n)')"
shows '29 < s["left"] <= 30 and s["since"] == s["holders"][0]["since"]' True

it "who waits, in the order of asking, and for how long"
begin "$MNT/a" -- true
expect eventually 5 waiters a 1
FIRST=$RUNNER
begin -s "$MNT/a" -- true
expect eventually 5 waiters a 2
gives 0 --status --json "$MNT/a"
shows 's["waiters"], len(s["waiting"])' "(2, 2)"
shows '[w["command"] for w in s["waiting"]]' "['true', 'true']"
shows 'all(0 <= w["seconds"] < 60 and w["pid"] > 1 for w in s["waiting"])' True
gives 0 --status "$MNT/a"
expect_is "$(grep -c '^  waiting: pid [0-9]* (true) of uid 0 on .* for [0-9.]* s$' "$OUT")" 2
says A 'rm("a")' ok
ended 0
RUNNER=$FIRST ended 0

it "all that share a lock are told"
begin -s "$MNT/s" -- sleep 60
FIRST=$RUNNER
expect eventually 5 exists s
begin -s "$MNT/s" -- sleep 60
two_hold() { [ "$(attribute s owner | wc -l)" = 2 ] || [ "$(attribute s owner | grep -c .)" = 2 ]; }
expect eventually 5 two_hold
gives 0 --status --json "$MNT/s"
shows 'len(s["holders"]), s["mode"]' "(2, 'shared')"
kill -TERM "$RUNNER" "$FIRST"
ended 143

it "a lock that is held as a symbolic link"
says A 'ln("elsewhere", "l")' ok
gives 0 --status --json "$MNT/l"
shows 's["held"], s["kind"], s["holders"][0]["pid"]' "(True, 'lease', ${actor_pid[A]})"
says A 'rm("l")' ok

it "a directory with many links and awaited locks: the tables of the mount are read once"
mkdir "$MNT/many"
says A 'len([ln("elsewhere", "many/link\n%d" % i) for i in range(300)])' 300
runners=()
for name in x y z; do
    says A "acquire('many/$name')" ok
    begin "$MNT/many/$name" -- true
    runners+=("$RUNNER")
    expect eventually 5 waiters "many/$name" 1
done
inotifywait -m -e open,close --format '%e %f %w' "$MNT/.leasefs/locks" "$MNT/.leasefs/waiters" >"$TEST_DIR/opens" 2>"$TEST_DIR/opens.err" &
WATCHER=$!
started+=("$WATCHER")
expect eventually 10 grep -q established "$TEST_DIR/opens.err"
gives 0 --status --json "$MNT/many"
expect eventually 5 grep -q '^CLOSE.*waiters' "$TEST_DIR/opens"
expect_is "$(sed -n 's,^OPEN .*/,,p' "$TEST_DIR/opens" | tr '\n' ' ')" "locks waiters " "tables that were opened"
kill "$WATCHER"
shows 'len(s["locks"]), {h["pid"] for l in s["locks"] for h in l["holders"]}' "(303, {${actor_pid[A]}})"
shows 'sorted(len(l["holders"]) for l in s["locks"])[0]' 1
shows '[(l["name"][-1], [w["command"] for w in l["waiting"]]) for l in sorted(s["locks"], key=lambda l: l["name"]) if l["waiting"]]' \
    "[('x', ['true']), ('y', ['true']), ('z', ['true'])]"
says A "len([os.unlink('$MNT/many/' + name) for name in os.listdir('$MNT/many')])" 303
for RUNNER in "${runners[@]}"; do ended 0; done
expect eventually 5 rmdir "$MNT/many"

it "a queue: its width, and each who holds and who waits by his place"
mkdir "$MNT/q"
gives 1 --status "$MNT/q"
begin -N 1 "$MNT/q" -- sleep 60
FIRST=$RUNNER
expect eventually 5 exists q/run-0000000000
begin "$MNT/q" -- true
expect eventually 5 waiters q 1
gives 0 --status --json "$MNT/q/"
shows 's["name"], s["kind"], s["width"], s["waiters"]' "('$MNT/q', 'queue', 1, 1)"
shows '[h["ticket"] for h in s["holders"]], [w["ticket"] for w in s["waiting"]]' "(['run-0000000000'], ['run-0000000001'])"
gives 0 --status "$MNT/q"
said '^  holder: run-0000000000 of pid'
said '^  waiting: run-0000000001 of pid'
gives 0 --status "$MNT/q/run-0000000000"
gives 1 --status "$MNT/q/run-0000000001"
kill -TERM "$FIRST"
ended 0
RUNNER=$FIRST ended 143
expect rmdir "$MNT/q"

it "waiters of a queue stand in its order, whatever their prefixes"
mkdir "$MNT/rw"
begin "$MNT/rw/write-" -- sleep 60
FIRST=$RUNNER
expect eventually 5 exists rw/write-0000000000
begin "$MNT/rw/write-" -- true
expect eventually 5 waiters rw 1
begin "$MNT/rw/read-" -- true
expect eventually 5 waiters rw 2
gives 0 --status --json "$MNT/rw"
shows '[w["ticket"] for w in s["waiting"]]' "['write-0000000001', 'read-0000000002']"
kill -TERM "$FIRST"
ended 0
RUNNER=$FIRST ended 143
expect eventually 5 rmdir "$MNT/rw"

it "a symbolic link outside of a leasefs leads to the lock, held or free"
mkdir "$TEST_DIR/var"
ln -s "$MNT/linked" "$TEST_DIR/var/absolute"
ln -s "../${MNT##*/}/linked" "$TEST_DIR/var/relative"
ln -s relative "$TEST_DIR/var/twice"
ln -s round "$TEST_DIR/var/round"
says A 'acquire("linked")' ok
for link in absolute relative twice; do
    gives 0 --status "$TEST_DIR/var/$link"
    said "^$MNT/linked: held\$"
done
gives 1 -n "$TEST_DIR/var/twice" -- true
gives 0 --break "$TEST_DIR/var/absolute"
gives 0 "$TEST_DIR/var/absolute" -- sh -c 'test "$LEASE_NAME" = "'"$MNT"'/linked"'
gives 1 --status "$TEST_DIR/var/twice"
said "^$MNT/linked: free\$"
gives 66 --status "$TEST_DIR/var/round"

it "a lock that was broken under a guard says until when its holder has time to end"
says A 'f = op("guarded", "RDONLY|CREAT"); flock(f, "EX"); put(f, "guard", "1m")' ok
gives 0 --break "$MNT/guarded"
said "^$MNT/guarded: broken; its holder .*python3.* has until [0-9][0-9]:[0-9][0-9]:[0-9][0-9] to end\$"
gives 0 --status "$MNT/guarded"
said "^$MNT/guarded: broken; its holder has until [0-9][0-9]:[0-9][0-9]:[0-9][0-9] to end\$"
gives 0 --status --json "$MNT/guarded"
shows 's["held"], s["broken"]' "(True, True)"
gives 1 -n "$MNT/guarded" -- true
said "broken; its holder .* to end\$"
gives 77 --break "$MNT/guarded"
said "with --force\$"
gives 0 --break --force "$MNT/guarded"
gives 1 --status "$MNT/guarded"
says A 'close(f)' ok
gives 64 --force --status "$MNT/guarded"

it "a queue whose maker was killed before it had its width gets it from the next, a directory of a user does not"
mkdir -m 1777 "$MNT/half"
gives 0 -N 3 "$MNT/half" -- true
expect_is "$(attribute half width) $(stat -c %a "$MNT/half")" "3 777"
gives 0 -N 2 "$MNT/whole" -- true
expect_is "$(attribute whole width) $(stat -c %A "$MNT/whole" | tail -c 2)" "2 x"
mkdir "$MNT/mine"
gives 65 -N 3 "$MNT/mine" -- true
rmdir "$MNT/half" "$MNT/whole" "$MNT/mine"

# A queue with many tickets: a request for each would be seen.
many_tickets() { # DIRECTORY
    says A "len([os.open('$1/a much longer name of a ticket-', os.O_CREAT | os.O_RDWR) for _ in range(1500)])" 1500
}
no_tickets() { says A "len([os.unlink('$1/' + name) for name in os.listdir('$1')])" 1500; } # DIRECTORY
getxattrs() { sed -n 's/^leasefs_requests_total{operation="getxattr",result="ok"} //p' "$MNT/.leasefs/metrics"; }
evalshas() { redis_cli INFO commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p'; }

it "a long queue is read in a few requests, each ticket once"
mkdir "$MNT/long"
many_tickets "$MNT/long"
BEFORE=$(getxattrs)
gives 0 --status --json "$MNT/long"
shows 'len(s["holders"]), len(s["waiting"])' "(1, 1499)"
shows 'len({w["ticket"] for w in s["waiting"]}), s["waiting"][-1]["ticket"]' "(1499, 'a much longer name of a ticket-0000001499')"
COUNT=$(($(getxattrs) - BEFORE))
if [ "$COUNT" -le 10 ]; then pass; else fail "$COUNT requests"; fi
no_tickets "$MNT/long"
expect rmdir "$MNT/long"

it "names of any bytes are valid JSON, which gives the very name back, and one line of text"
for name in 'q"uote\back' $'new\nline\ttab' $'caf\xc3\xa9' $'broken\xff\xc3x' $'\xed\xa0\x80\x7f'; do
    "$PYTHON" -c 'import os, sys; os.close(os.open(os.fsencode(sys.argv[1]), os.O_CREAT | os.O_EXCL)); os._exit(0)' "$MNT/$name"
    gives 0 --status --json "$MNT/$name"
    expect_is "$(json 'os.fsencode(s["name"]).hex()')" "$(printf %s "$MNT/$name" | od -An -v -tx1 | tr -d ' \n')"
    gives 0 --status "$MNT/$name"
    expect_is "$(grep -c . "$OUT")" "$(grep -cE '^(/|  [a-z]+: )' "$OUT")" "lines"
    rm "$MNT/$name"
done

it "more directories in each other than a process may have files open"
for ((i = 0; i < 100; i++)); do deep+=/d; done
mkdir -p "$MNT$deep"
says A "acquire('${deep#/}/L')" ok
files=$(ulimit -Sn)
ulimit -Sn 64
gives 0 --status "$MNT"
ulimit -Sn "$files"
expect_re "$(cat "$OUT")" "$MNT$deep/L: held"
says A "rm('${deep#/}/L')" ok
expect rm -r "$MNT/d"

# churn DIRECTORY OUTSIDE: turns its directories into locks and into links to OUTSIDE, and back, until it is killed.
churn() {
    exec "$PYTHON" -c '
import os, sys
names = [os.path.join(sys.argv[1], "d%d" % i) for i in range(200)]
while True:
    for i, name in enumerate(names):
        os.mkdir(name)
    for i, name in enumerate(names):
        os.rmdir(name)
        os.symlink(sys.argv[2], name) if i % 2 else os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    for name in names:
        os.unlink(name)
' "$1" "$2"
}

it "a directory that becomes a lock or a link while it is listed"
mkdir "$MNT/churn" "$TEST_DIR/outside"
ln -s x "$TEST_DIR/outside/stranger"
churn "$MNT/churn" "$TEST_DIR/outside" &
CHURN=$!
started+=("$CHURN")
statuses=
for ((i = 0; i < 30; i++)); do
    run --status "$MNT/churn"
    statuses+="$STATUS "
    expect_not grep stranger "$OUT" # nothing follows the link
done
expect_not gone "$CHURN"
expect_re "$statuses" '^([01] )+$'
kill "$CHURN"
expect eventually 5 gone "$CHURN"
find "$MNT/churn" -mindepth 1 -delete
expect rmdir "$MNT/churn"

it "what cannot be told has another status: no leasefs, no directory, no arguments"
gives 66 --status "$TEST_DIR/a"
gives 66 --status "$MNT/none/a"
gives 66 --status "$MNT/$(printf '%0256d' 0)"
said 'File name too long$'
gives 64 --status
gives 64 --status "$MNT/a" "$MNT/b"
gives 64 --json "$MNT/a" -- true
gives 64 --status --get "$MNT/a"
gives 64 --status -n "$MNT/a"

# --- --get and --put ---

it "--get takes the lock and prints its token, and nothing else; --put gives it back"
gives 0 --get "$MNT/g"
expect_is "$(cat "$OUT")" "$(attribute g token)"
TOKEN=$(cat "$OUT")
expect_not flock -n "$MNT/g" true
gives 0 --put "$MNT/g" "$TOKEN"
expect_is "$(cat "$OUT")" ""
expect absent g
TOKEN=$("$LEASERUN" --get "$MNT/g")
expect "$LEASERUN" --put "$MNT/g" <<<"$TOKEN"
expect absent g

it "a wrong token, one that is over, or none is an error, and changes nothing"
TOKEN=$("$LEASERUN" --get "$MNT/g" -t 30)
gives 75 --put "$MNT/g" $((TOKEN + 1))
said "not held with the token $((TOKEN + 1))"
gives 64 --put "$MNT/g"
for wrong in "" x "${TOKEN}x" "-1" 99999999999999999999999999999999999999; do gives 64 --put "$MNT/g" -- "$wrong"; done
expect exists g
gives 0 --put "$MNT/g" "$TOKEN"
gives 75 --put "$MNT/g" "$TOKEN"
gives 66 --put "$TEST_DIR/g" 1

it "the term is fixed: -t says how long, it is not renewed, and the lock is free after it"
now
T=$NOW
TOKEN=$("$LEASERUN" --get -t 600ms "$MNT/g")
expect_between 1 "$(remaining g)" 600
expect eventually 5 absent g
now
expect_between 580 $((NOW - T)) $((600 + SLACK)) "milliseconds that it lasted"
gives 75 --put "$MNT/g" "$TOKEN"
gives 0 --get "$MNT/g"
expect_between 29000 "$(remaining g)" 30000
gives 0 --put "$MNT/g" "$(cat "$OUT")"

it "no process owns it: it is there when all that took part have ended, and is nobody's child's"
bash -c "'$LEASERUN' --get '$MNT/g' -t 60 >'$TEST_DIR/token'; echo x >'$TEST_DIR/shell'; exec sleep 60" &
started+=("$!")
SHELL_PID=$!
expect eventually 5 mark shell
gives 0 --status --json "$MNT/g"
shows 's["held"], s["holders"][0]["command"]' "(True, 'leaserun')"
expect_not gone "$SHELL_PID"
expect rm "$MNT/g" # while that shell lives, who would else be its owner

it "it is refused while another holds it, and waits for it with -w"
says A 'acquire("g")' ok
gives 1 --get -n "$MNT/g"
gives 7 -E 7 -w 0.2 --get "$MNT/g"
expect_re "$(cat "$OUT")" "^leaserun: $MNT/g: not free in time: held by $(uname -n):${actor_pid[A]} python3[^ ]*, for [0-9.]*s\$"
begin --get "$MNT/g" -w 20 -t 40
expect_not eventually 1 gone "$RUNNER"
now
T=$NOW
says A 'rm("g")' ok
ended 0
now
expect_between 0 $((NOW - T)) "$SLACK" "milliseconds until it was taken"
gives 0 --put "$MNT/g" "$(cat "$OUT.bg")"

it "of many that wait each gets it once"
runners=()
for i in $(seq 6); do
    bash -c "t=\$('$LEASERUN' --get '$MNT/g' -w 30) && mkdir '$TEST_DIR/alone' && rmdir '$TEST_DIR/alone' && '$LEASERUN' --put '$MNT/g' \$t" &
    runners+=("$!")
    started+=("$!")
done
for runner in "${runners[@]}"; do expect wait "$runner"; done
expect absent g

it "a queue cannot be taken so; nor what is not in a leasefs"
mkdir "$MNT/q"
gives 64 --get "$MNT/q"
gives 64 --get "$MNT/x-"
gives 66 --get "$TEST_DIR/g"
expect_not [ -e "$TEST_DIR/g" ]
gives 64 --get "$MNT/g" "$MNT/h"
gives 64 --get -s "$MNT/g"
rmdir "$MNT/q"
expect_is "$(ls "$MNT")" ""

it "a token that cannot be told is no use: the lock is given back"
"$LEASERUN" --get "$MNT/g" >/dev/full 2>"$OUT"
expect_is $? 74
expect absent g

it "killed before it has told the token it gives the lock back"
mkfifo "$TEST_DIR/full"
for signal in KILL TERM; do
    exec 8<>"$TEST_DIR/full"
    dd if=/dev/zero of="$TEST_DIR/full" bs=4k oflag=nonblock 2>/dev/null # until nothing goes in any more
    "$LEASERUN" --get "$MNT/g" -t 60 >&8 8>&- &
    RUNNER=$!
    started+=("$RUNNER")
    expect eventually 5 exists g
    expect constantly 200 exists g
    kill -"$signal" "$RUNNER"
    ended $((128 + $(kill -l "$signal")))
    expect eventually 5 absent g
    exec 8>&-
done

# --- --top ---

says A 'acquire("quiet")' ok
says B 'acquire("busy")' ok
mkdir "$MNT/q"
begin "$MNT/q" -- sleep 60
QUEUE=$RUNNER
expect eventually 5 exists q/run-0000000000
begin "$MNT/q" -- true
expect eventually 5 waiters q 1
for i in 1 2; do
    begin "$MNT/busy" -- true
    expect eventually 5 waiters busy "$i"
done

it "--top prints the locks of the mount, who blocks most first, once where there is no terminal"
gives 0 --top "$MNT"
said "$MNT: 3 held, 3 waiting\$"
expect_is "$(sed 1,2d "$OUT" | awk '{ print $1, $5, $7 }' | tr '\n' ' ')" "2 lease busy 1 ticket q/run-0000000000 0 lease quiet "
said "busy  $(uname -n):${actor_pid[B]} python3"
said '^ +2 +[0-9.]+s +[0-9.]+s +[0-9.]+s '
gives 0 --top "$MNT/q"
said '3 held'
cd "$MNT" || exit 1
gives 0 --top
cd / || exit 1
said '3 held'
gives 0 --top "$MNT/" # and of a terminal that can do nothing

it "where there is no leasefs it says so"
gives 66 --top "$TEST_DIR"
said 'not in a leasefs'
gives 66 --top "$TEST_DIR/none"
gives 64 --top "$MNT" more

terminal() { # COMMAND… <SCRIPT
    local answer
    if answer=$(TERM=vt100 "$PYTHON" -S -E "$E2E_DIR/terminal.py" "$@"); then pass; else fail "$answer"; fi
}

it "on a terminal it is live until q, and leaves the terminal as it was"
terminal bash --norc -c "stty cols 60 rows 10; '$LEASERUN' --top '$MNT'; echo status \$?; stty -a | grep -o ' -*icanon\| -*echo ' | tr '\n' ' '" <<'SCRIPT'
await 3 held, 3 waiting
await busy[^\n]*\n[^\n]*q/run[^\n]*\n[^\n]*quiet
await 3 held
send q
await status 0
await  icanon  echo 
SCRIPT
terminal bash --norc -c "stty cols 60 rows 6; '$LEASERUN' --top '$MNT'" <<'SCRIPT'
await busy[^\n]*\n[^\n]*q/run
await and 1 more
send \x03
SCRIPT

it "q leaves it while the daemon hangs"
stops="(sleep 1; kill -STOP $DAEMON; sleep 2; echo stopped) & "
terminal bash --norc -c "$stops '$LEASERUN' --top '$MNT'; echo status \$?; kill -CONT $DAEMON; stty -a | grep -o ' -*icanon'" <<'SCRIPT'
await held
await stopped
send q
await status 0
await  icanon
SCRIPT

it "what comes meanwhile is seen"
terminal bash --norc -c "(sleep 1; touch '$MNT/late') & '$LEASERUN' --top '$MNT'; echo status \$?" <<SCRIPT
await 4 held
await late
send q
await status 0
SCRIPT

it "a signal ends it, and the terminal is as it was"
terminal bash --norc -c "'$LEASERUN' --top '$MNT' </dev/tty & P=\$!; until grep -q lease /proc/\$P/comm; do :; done; kill -TERM \$P; wait \$P; echo status \$?; stty -a | grep -o ' -*icanon\| -*echo ' | tr '\n' ' '" <<'SCRIPT'
await status 143
await  icanon  echo 
SCRIPT
kill -TERM "$QUEUE"

# --- a second user ---

mount_memory ttl=30,allow_other
install -m 755 "$LEASERUN" "$TEST_DIR/leaserun" # others cannot run what is in every checkout
as() { # UID ARGUMENT…: of leaserun
    local uid=$1
    shift
    STATUS=0
    setpriv --reuid "$uid" --regid "$uid" --clear-groups "$TEST_DIR/leaserun" "$@" >"$OUT" 2>&1 </dev/null || STATUS=$?
}

it "another user sees who holds and who waits, and cannot give back what is not his, even by the token"
as 12345 --get "$MNT/g" -t 60
expect_is "$STATUS" 0
TOKEN=$(cat "$OUT")
as 23456 --status --json "$MNT/g"
expect_is "$STATUS" 0
shows 's["holders"][0]["uid"], s["token"]' "(12345, $TOKEN)"
as 23456 --top "$MNT"
said "1 held, 0 waiting\$"
as 23456 --put "$MNT/g" "$TOKEN"
expect_is "$STATUS" 66
expect exists g
as 23456 --get -n "$MNT/g"
expect_is "$STATUS" 1
as 12345 --put "$MNT/g" "$TOKEN"
expect_is "$STATUS" 0
expect absent g

it "several locks of which another user holds one: all are free of it when it is refused"
as 12345 --get "$MNT/m" -t 60
TOKEN=$(cat "$OUT")
as 23456 -n -l "$MNT/z" -l "$MNT/m" -l "$MNT/a" -- true
expect_is "$STATUS" 1
expect_is "$(ls "$MNT")" m
as 12345 --put "$MNT/m" "$TOKEN"
(umask 0 && as 23456 -N 2 "$MNT/q" -- true && [ "$STATUS" = 0 ]) # as for everything that others may use
expect_is "$?" 0
as 12345 -n -N 2 "$MNT/q" -- true
expect_is "$STATUS" 0

# --- two hosts ---

redis_start
mount_two ttl=3

it "through another mount the holder is told, and how many wait here and there"
begin "$MOUNT_A/r" -- sleep 60
expect eventually 5 exists r
HOLDER=$RUNNER
begin "$MOUNT_A/r" -- true
expect eventually 5 waiters r 1
begin "$MOUNT_B/r" -- true
expect eventually 5 waiters r 2
gives 0 --status --json "$MOUNT_B/r"
shows 's["waiters"], len(s["waiting"]), s["holders"][0]["command"]' "(2, 1, 'sleep')"
gives 0 --status "$MOUNT_B/r"
said '^  waiting: 1 through other mounts$'
kill -TERM "$HOLDER"
ended 0

it "a queue is told whole through any mount"
mkdir "$MOUNT_A/q"
begin "$MOUNT_A/q" -- sleep 60
expect eventually 5 exists q/run-0000000000
HOLDER=$RUNNER
begin "$MOUNT_A/q" -- true
expect eventually 5 waiters q 1
gives 0 --status --json "$MOUNT_B/q"
shows '[h["ticket"] for h in s["holders"]], [w["ticket"] for w in s["waiting"]]' "(['run-0000000000'], ['run-0000000001'])"
kill -TERM "$HOLDER"
ended 0

it "a long queue is a few requests to the server"
mkdir "$MOUNT_A/long"
many_tickets "$MOUNT_A/long"
SCRIPTS=$(evalshas)
gives 0 --status --json "$MOUNT_B/long"
shows 'len(s["holders"]), len(s["waiting"])' "(1, 1499)"
COUNT=$(($(evalshas) - SCRIPTS))
if [ "$COUNT" -le 100 ]; then pass; else fail "$COUNT scripts"; fi # most are heartbeats
no_tickets "$MOUNT_A/long"

it "--put gives back through one mount what --get took through the other, and --get waits for it"
TOKEN=$("$LEASERUN" --get "$MOUNT_A/g" -t 60)
gives 1 --get -n "$MOUNT_B/g"
begin --get "$MOUNT_B/g" -w 20
gives 75 --put "$MOUNT_B/g" $((TOKEN + 7))
gives 0 --put "$MOUNT_B/g" "$TOKEN"
ended 0
gives 0 --put "$MOUNT_A/g" "$(cat "$OUT.bg")"

it "when the store is away that is said, with status 69"
redis_pause
gives 69 --get -n "$MOUNT_A/h"
gives 69 --status "$MOUNT_A/h"
gives 69 --put "$MOUNT_A/h" 1
redis_resume

finish
