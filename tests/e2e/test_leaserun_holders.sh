#!/bin/bash
# Holders: the command that runs under leaserun and flock, notes, the message to a caller that is refused, --break, the
# status of a directory, and the exit status of a store that is away.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
redis_start
mount_two ttl=6,timeout=1s,connect_timeout=1s,allow_other

json() { "$PYTHON" -c 'import json, os, sys; s = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$OUT" "$1" 2>&1; }
shows() {
    local is
    is=$(json "$1")
    if [ "$is" = "$2" ]; then pass; else fail "$1: got $is, not $2"; fi
}
command_of() { getfattr --only-values --absolute-names -n user.lease.owner "$1" 2>/dev/null | cut -d' ' -f4-; }
shown_as() { [ "$(command_of "$1")" = "$2" ]; }
as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)

it "the command that runs under leaserun is shown as the holder, on every mount and in the tables"
begin "$MOUNT_A/job" -- sleep 60
HOLDER=$RUNNER
expect eventually 5 shown_as "$MOUNT_A/job" sleep
expect shown_as "$MOUNT_B/job" sleep
expect grep -qP '^job\tflock\texclusive\t[^\t]*\t\d+\t0\tsleep\t' "$MOUNT_A/.leasefs/locks"
gives 0 --status --json "$MOUNT_B/job"
shows 's["holders"][0]["command"]' sleep

it "the first word of -c is shown, and the last part of a path, at most 15 bytes"
begin "$MOUNT_A/line" -c "  /bin/sleep 60; true"
expect eventually 5 shown_as "$MOUNT_B/line" sleep
kill "$RUNNER"
ended 143
cp "$(command -v sleep)" "$TEST_DIR/a command with a long name"
begin -F "$MOUNT_A/line" -- "$TEST_DIR/a command with a long name" 60
expect eventually 5 shown_as "$MOUNT_B/line" "a command with "
kill "$RUNNER"
ended 143

it "so is what runs under flock: here at once, on another host a second later"
flock "$MOUNT_A/flocked" sleep 60 &
FLOCK=$!
started+=("$FLOCK")
expect eventually 5 shown_as "$MOUNT_A/flocked" sleep
expect eventually 5 shown_as "$MOUNT_B/flocked" sleep
expect grep -qP '^flocked\tflock\texclusive\t[^\t]*\t'$FLOCK'\t0\tsleep\t' "$MOUNT_A/.leasefs/locks"
pkill -P "$FLOCK"
expect eventually 5 absent flocked

it "a ticket of a queue shows its command too, waiting or not"
begin -N 1 "$MOUNT_A/queue" -- sleep 60
QUEUED=$RUNNER
expect eventually 5 exists queue/run-0000000000
begin "$MOUNT_A/queue" -- cat
expect eventually 5 test -e "$MOUNT_A/queue/run-0000000001"
gives 0 --status --json "$MOUNT_A/queue"
shows 's["holders"][0]["command"], s["waiting"][0]["command"]' "('sleep', 'cat')"
gives 1 -w .2 "$MOUNT_B/queue" -- true
said "not free in time: held by $(uname -n):[0-9]+ [a-z]+, for [0-9.]+s"
kill "$QUEUED"
ended 0

it "-n and -w name the holder and say for how long it holds; with -E 0 only -v says it"
gives 1 -n "$MOUNT_B/job" -- true
said "^leaserun: $MOUNT_B/job: held by $(uname -n):[0-9]+ sleep, for [0-9.]+s$"
gives 4 -E 4 -w .2 "$MOUNT_A/job" -- true
said "^leaserun: $MOUNT_A/job: not free in time: held by $(uname -n):[0-9]+ sleep, for [0-9.]+s$"
gives 0 -n -E 0 "$MOUNT_A/job" -- true
expect_is "$(cat "$OUT")" ""
gives 0 -v -n -E 0 "$MOUNT_A/job" -- true
said "^leaserun: $MOUNT_A/job: held by $(uname -n):[0-9]+ sleep, for [0-9.]+s$"
begin -s "$MOUNT_A/shared" -- sleep 60
FIRST=$RUNNER
begin -s "$MOUNT_A/shared" -- sleep 60
two() { [ "$(getfattr --only-values --absolute-names -n user.lease.owner "$MOUNT_A/shared" 2>/dev/null | grep -c .)" = 2 ]; }
expect eventually 5 two
gives 1 -n "$MOUNT_A/shared" -- true
said 'sleep and 1 more, for'
kill "$FIRST" "$RUNNER"
ended 143

it "a note is shown to others, in tables and messages; control characters become spaces"
begin --note $'of web1\n\e[31mred' "$MOUNT_A/noted" -- sleep 60
expect eventually 5 exists noted
note_is() { [ "$(getfattr --only-values --absolute-names -n user.lease.note "$1" 2>/dev/null)" = "$2" ]; }
expect eventually 5 note_is "$MOUNT_A/noted" "of web1  [31mred"
expect note_is "$MOUNT_B/noted" "of web1  [31mred"
expect grep -qP '^noted\t.*\tof web1  \[31mred$' "$MOUNT_A/.leasefs/locks"
gives 0 --status "$MOUNT_B/noted"
said '^  note: of web1  \[31mred$'
gives 1 -n "$MOUNT_B/noted" -- true
said 'sleep \(of web1  \[31mred\), for'
gives 64 --note "$(printf '%65s' x)" "$MOUNT_A/other" -- true
gives 64 --note x --status "$MOUNT_A/other"

it "the note of a ticket is shown to others, too"
NOTED=$RUNNER
begin -N 1 --note 'of web2\x41' "$MOUNT_A/notes" -- sleep 60
expect eventually 5 note_is "$MOUNT_A/notes/run-0000000000" 'of web2\x41'
expect_re "$(getfattr --only-values --absolute-names -n user.lease.tickets "$MOUNT_B/notes")" $'\tof web2\\\\x5cx41$'
gives 0 --status "$MOUNT_B/notes"
said '^  holder: run-0000000000 of pid [0-9]* \(sleep\) .*, note: of web2\\x5cx41$'
gives 1 -n "$MOUNT_B/notes" -- true
said 'sleep \(of web2\\x5cx41\), for'
kill "$RUNNER"
ended 143
RUNNER=$NOTED
expect eventually 5 rmdir "$MOUNT_A/notes"

it "a note is its holder's: others cannot set it, it has no control characters, and it ends with the lock"
expect_not setfattr -n user.lease.note -v mine "$MOUNT_B/noted" 2>/dev/null
expect_not "${as_nobody[@]}" setfattr -n user.lease.note -v mine "$MOUNT_A/noted" 2>/dev/null
kill "$RUNNER"
ended 143
touch "$MOUNT_A/noted"
expect_not getfattr -n user.lease.note "$MOUNT_A/noted" 2>/dev/null
expect setfattr -n user.lease.note -v 'by me' "$MOUNT_A/noted"
expect note_is "$MOUNT_B/noted" "by me"
expect_not setfattr -n user.lease.note -v "0x610a62" "$MOUNT_A/noted" 2>/dev/null
expect setfattr -x user.lease.note "$MOUNT_A/noted"
expect_not getfattr -n user.lease.note "$MOUNT_B/noted" 2>/dev/null
expect rm "$MOUNT_A/noted"

it "a note outlives its daemon, and moves with the lock to the next"
begin --note kept "$MOUNT_A/kept" -- sleep 60
expect eventually 5 note_is "$MOUNT_A/kept" kept
POINT=$MOUNT_A
kill -KILL "$DAEMON_A"
expect eventually 10 gone "$DAEMON_A"
mount_at "$POINT" "$REDIS_URI" ttl=6,timeout=1s,connect_timeout=1s,allow_other
expect eventually 10 note_is "$MOUNT_A/kept" kept
expect note_is "$MOUNT_B/kept" kept
kill "$RUNNER"
ended 143

it "--break takes the lock from its holder through any mount, and says whose it was"
gives 0 --break "$MOUNT_B/job"
# the holder may have ended already
said "^$MOUNT_B/job: broken; (its holder $(uname -n):[0-9]+ sleep has until [0-9:]+ to end|it was held by $(uname -n):[0-9]+ sleep, for [0-9.]+s)\$"
RUNNER=$HOLDER ended 75
expect eventually 5 test ! -e "$MOUNT_B/job" # the kernel does not wait for the close of a process that exits
gives 1 --break "$MOUNT_B/job"
said 'nobody holds it'
gives 64 --break "$MOUNT_A/queue"
gives 64 --break "$MOUNT_A/job" extra
gives 66 --break "$TEST_DIR"

name="--break of a lock that ends meanwhile says that nobody holds it"
if command -v strace >/dev/null; then
    it "$name"
    touch "$MOUNT_A/ending"
    STATUS=0
    ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" strace -qq -o /dev/null -e inject=lsetxattr:error=ENOENT \
        "$LEASERUN" --break "$MOUNT_A/ending" >"$OUT" 2>&1 || STATUS=$?
    expect_is "$STATUS" 1
    said 'nobody holds it'
    rm "$MOUNT_A/ending"
else
    skip "$name" "no strace"
fi

it "--break of another user's lock is refused with status 77, and says whose it is"
touch "$MOUNT_A/roots"
chmod 755 "$TEST_DIR" "$MOUNT_A"
STATUS=0
"${as_nobody[@]}" "$LEASERUN" --break "$MOUNT_A/roots" >"$OUT" 2>&1 || STATUS=$?
expect_is "$STATUS" 77
said 'only root, or the user that all holders have, can break it: held by'
rm "$MOUNT_A/roots"

it "--status of a directory: its queue, and the locks in it and below, of all hosts; of the root, the whole mount"
mkdir -p "$MOUNT_A/deep/er"
touch "$MOUNT_A/deep/er/one" "$MOUNT_B/deep/t w o"
begin -N 2 "$MOUNT_A/deep/places" -- sleep 60
expect eventually 5 exists deep/places/run-0000000000
gives 0 --status --json "$MOUNT_A/deep"
shows 's["held"], sorted((l["name"], l["kind"]) for l in s["locks"])' \
    "(False, [('$MOUNT_A/deep/er/one', 'lease'), ('$MOUNT_A/deep/places', 'queue'), ('$MOUNT_A/deep/t w o', 'lease')])"
gives 0 --status --json "$MOUNT_B"
shows 'len([l for l in s["locks"] if "/deep/" in l["name"]]), [l["width"] for l in s["locks"] if l["kind"] == "queue"]' "(3, [2])"
gives 0 --status "$MOUNT_B/deep/er"
said "^$MOUNT_B/deep/er/one: held$"
gives 0 --top --json "$MOUNT_A/deep"
shows 's["mount"], sorted(l["name"] for l in s["locks"] if "deep" in l["name"])' "('$MOUNT_A', ['deep/er/one', 'deep/places/run-0000000000'])"
shows 'sorted(s["locks"][0]) == sorted(["name", "kind", "mode", "host", "command", "note", "pid", "uid", "age", "waiters", "longest", "left"])' True
kill "$RUNNER"
ended 143
rm "$MOUNT_A/deep/er/one" "$MOUNT_B/deep/t w o"
rmdir "$MOUNT_A/queue"
gives 1 --status --json "$MOUNT_A/deep/er"
shows 's["locks"]' "[]"

it "a store that is away or in a grace period has status 69, and the message says why; a daemon that has ended has 70"
redis_stop
expect eventually 20 grep -q '^state: away' "$MOUNT_A/.leasefs/status"
for action in "-n $MOUNT_A/x true" "--status $MOUNT_A/x" "--get -n $MOUNT_A/x" "--break $MOUNT_A/x" "--once 1m $MOUNT_A/x true" \
    "$MOUNT_A/deep/x true"; do
    # shellcheck disable=SC2086
    gives 69 $action
    said "^leaserun: $MOUNT_A/.*: the store is away: .*, since 20[-0-9T:Z]*; see $MOUNT_A/.leasefs/status$"
done
redis_again
expect eventually 20 grep -q '^grace period' "$MOUNT_A/.leasefs/status"
gives 69 -n "$MOUNT_A/x" -- true
said 'the store grants no new lock at present: grace period: no new lock for [0-9]* s, the server lost data'
kill -KILL "$DAEMON_B"
expect eventually 10 gone "$DAEMON_B"
gives 70 "$MOUNT_B/x" -- true
said 'the daemon of the leasefs has ended'
umount "$MOUNT_B"

finish
