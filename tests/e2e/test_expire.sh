#!/bin/bash
# Expiry is visible at once, to everything that looks, although the kernel caches entries.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory ttl=1500ms
actor A

# Looks all the time, so that the entry is in the kernel's cache; LASTED tells for how many milliseconds since
# begin_now it was there.
begin_now() {
    now
    BEGAN=$NOW
}
seen_by() { # COMMAND…
    while "$@"; do
        pause 0.005
        now
        [ $((NOW - BEGAN)) -lt 20000 ] || break
    done
    now
    LASTED=$((NOW - BEGAN))
}
listed() { [[ $'\n'$(ls "$MNT/sub") == *$'\n'"$1"* ]]; }

it "[ -e L ] sees the end of a fixed term"
begin_now
says A 'acquire("e"); put("e", "ttl", "1s")' ok
seen_by [ -e "$MNT/e" ]
expect_between 850 "$LASTED" $((1000 + SLACK)) "milliseconds seen"

it "[ -e L ] once, long cached, then again after the end"
says A 'acquire("once")' ok
expect [ -e "$MNT/once" ]
says A 'put("once", "ttl", "400ms")' ok
pause 0.6
expect_not [ -e "$MNT/once" ]

it "ls sees the end"
mkdir "$MNT/sub"
begin_now
says A 'acquire("sub/l"); put("sub/l", "ttl", "1s")' ok
seen_by listed l
expect_between 850 "$LASTED" $((1000 + SLACK)) "milliseconds seen"
expect_is "$(ls "$MNT/sub")" ""

it "the end of a lease whose owner was killed is seen by [ -e L ] and ls"
actor C
says C 'acquire("sub/dead")' ok
pause 1.1
end_actor C
begin_now
seen_by [ -e "$MNT/sub/dead" ]
expect_between 0 "$LASTED" $((1500 + SLACK)) "milliseconds seen"
expect_is "$(ls "$MNT/sub")" ""

it "inotifywait -e delete_self sees the end"
: >"$TEST_DIR/inotify.err"
if command -v inotifywait >/dev/null; then
    says A 'acquire("watched")' ok
    expect [ -e "$MNT/watched" ]
    inotifywait -e delete_self -t 20 "$MNT/watched" >"$TEST_DIR/inotify.out" 2>"$TEST_DIR/inotify.err" &
    watcher=$!
    started+=("$watcher")
    expect eventually 10 grep -q established "$TEST_DIR/inotify.err"
    begin_now
    says A 'put("watched", "ttl", "700ms")' ok
    expect wait "$watcher"
    now
    expect_between 600 $((NOW - BEGAN)) $((700 + SLACK)) "milliseconds until the event"
    expect grep -q DELETE_SELF "$TEST_DIR/inotify.out"
else
    fail "no inotifywait (package inotify-tools)"
fi

it "inotifywait -e delete_self sees the release of a lease, and of a broken one"
for how in 'rm("watched2")' 'put("watched2", "break", "1")' 'put("watched2", "release", get("watched2", "token"))'; do
    says A 'acquire("watched2")' ok
    : >"$TEST_DIR/inotify.err"
    inotifywait -e delete_self -t 20 "$MNT/watched2" >"$TEST_DIR/inotify.out" 2>"$TEST_DIR/inotify.err" &
    watcher=$!
    started+=("$watcher")
    expect eventually 10 grep -q established "$TEST_DIR/inotify.err"
    says A "$how" ok
    expect wait "$watcher"
    expect grep -q DELETE_SELF "$TEST_DIR/inotify.out"
done

it "inotifywait on the directory sees a lease come and be released"
: >"$TEST_DIR/inotify.err"
inotifywait -m -e create,delete "$MNT/sub" >"$TEST_DIR/inotify.dir" 2>"$TEST_DIR/inotify.err" &
watcher=$!
started+=("$watcher")
expect eventually 10 grep -q established "$TEST_DIR/inotify.err"
says A 'acquire("sub/event")' ok
expect eventually 5 grep -q 'CREATE event' "$TEST_DIR/inotify.dir"
says A 'rm("sub/event")' ok
expect eventually 5 grep -q 'DELETE event' "$TEST_DIR/inotify.dir"
end_process "$watcher"

it "a name that was looked for in vain is seen as soon as it is acquired"
for i in {1..20}; do
    expect_not [ -e "$MNT/neg$i" ]
    says A "acquire('neg$i')" ok
    expect [ -e "$MNT/neg$i" ]
    says A "rm('neg$i')" ok
    expect_not [ -e "$MNT/neg$i" ]
done

it "the cached content and size of an earlier lease are not shown for a later one"
actor B
for i in {1..10}; do
    says A "acquire('c', 'first $i')" ok
    expect_is "$(cat "$MNT/c")" "first $i" # and the kernel keeps it
    says A "put('c', 'ttl', '300ms')" ok
    expect eventually 20 answers B "acquire('c', 'the second $i')" ok
    expect_is "$(cat "$MNT/c")" "the second $i"
    expect_is "$(stat -c %s "$MNT/c")" $((${#i} + 11))
    says B 'rm("c")' ok
done

it "what another process changes is seen at once: content, mode, times"
says A 'f = op("seen", "RDWR|CREAT|EXCL")' ok
for i in {1..10}; do
    says A "os.pwrite(f, b'value $i', 0) and None" ok
    expect_is "$(cat "$MNT/seen")" "value $i"
    says A "os.chmod(path('seen'), 0o6$((i % 8))0)" ok
    expect_is "$(stat -c %a "$MNT/seen")" "6$((i % 8))0"
done

it "a thousand leases that end in the same second are all gone"
mkdir "$MNT/thousand"
says A 'put("thousand", "ttl", "30s")' ok
ASK_LIMIT=100 says A '[acquire("thousand/%d" % i) for i in range(1000)] and None' ok
ASK_LIMIT=100 says A '[put("thousand/%d" % i, "ttl", "1s") for i in range(1000)] and None' ok
all_gone() { [ -z "$(ls -A "$MNT/thousand")" ]; }
expect eventually 20 all_gone
expect rmdir "$MNT/thousand"

finish
