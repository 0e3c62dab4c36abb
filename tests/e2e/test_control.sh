#!/bin/bash
# The directory .leasefs and the log: what people and monitors see.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v setpriv >/dev/null || skip_all "no setpriv"

control() { "$PYTHON" "$E2E_DIR/control.py" "$@" 2>&1; }
fact() { sed -n "s/^$1: //p" "$MNT/.leasefs/status"; }
held() { grep -c "^$1"$'\t' "$MNT/.leasefs/locks"; }
metric() { control value "$MNT/.leasefs/metrics" "$@"; }
error_of() { LC_ALL=C "$@" 2>&1 >/dev/null | sed 's/.*: //'; }
in_log() { grep -qE -- "$1" "$LOG"; }

mount_memory ttl=1s
actor A
actor B
[ -n "$PYTHON" ] || skip_all "no python3"

it ".leasefs is not listed, and is found by its name"
expect_is "$(ls -A "$MNT")" ""
expect_is "$(ls "$MNT/.leasefs")" "locks
metrics
status
waiters"
expect_is "$(find "$MNT")" "$MNT"

it "status tells version, mount point, backend, pid and counts"
expect_is "$(fact mount)" "$MNT"
expect_is "$(fact pid)" "$DAEMON"
expect_is "$(fact backend)" memory
expect_is "$(fact state)" connected
expect_is "$(fact held)" 0
expect_is "$(fact ttl)" 1.000
expect_is "leasefs $(fact version)" "$("$LEASEFS" --version | sed 's/ (.*//')"

it "nothing in there is made, changed, removed or locked, and no lock has its name"
expect_is "$(error_of touch "$MNT/.leasefs/new")" "Operation not permitted"
expect_is "$(error_of rm "$MNT/.leasefs/status")" "Operation not permitted"
expect_is "$(error_of chmod 777 "$MNT/.leasefs/status")" "Operation not permitted"
expect_is "$(error_of rmdir "$MNT/.leasefs")" "Operation not permitted"
expect_is "$(error_of mkdir "$MNT/.leasefs")" "File exists"
says A 'os.open(path(".leasefs/status"), os.O_WRONLY)' EPERM
says A 'os.open(path(".leasefs"), os.O_CREAT | os.O_EXCL)' EEXIST
says A 'fcntl.flock(os.open(path(".leasefs/status"), os.O_RDONLY), fcntl.LOCK_EX)' ENOLCK
says A 'acquire("mine"); os.rename(path("mine"), path(".leasefs/mine"))' EPERM
says A 'rm("mine")' ok

it "locks tells who holds what; names with newline, tab and backslash stay one line"
says A 'acquire("a\nb\tc\\")' ok
says A 'acquire("plain")' ok
expect_is "$(wc -l <"$MNT/.leasefs/locks")" 3
line=$(grep '^a\\x0ab\\x09c\\x5c'$'\t' "$MNT/.leasefs/locks")
expect_is "$line" "*"$'\t'"lease"$'\t'"exclusive"$'\t'"$(uname -n)"$'\t'"${actor_pid[A]}"$'\t'"0"$'\t'"*"
expect_is "$(fact held)" 2
says A 'rm("plain")' ok
expect_is "$(held plain)" 0
says A 'rm("a\nb\tc\\")' ok

it "waiters tells who waits, and the holder's line how many"
says A 'f = op("queue", "RDONLY|CREAT"); fcntl.flock(f, fcntl.LOCK_EX)' ok
start flock "$MNT/queue" true
waiter=$STARTED
expect eventually 5 grep -q "^queue"$'\t'"flock"$'\t'"exclusive"$'\t'"[^	]*"$'\t'"$waiter"$'\t' "$MNT/.leasefs/waiters"
expect_is "$(sed -n 's/^queue\t.*\t\([0-9]*\)\t-$/\1/p' "$MNT/.leasefs/locks")" 1
expect_is "$(fact waiting)" 1
says A 'close(f)' ok
expect eventually 5 gone "$waiter"
expect_is "$(wc -l <"$MNT/.leasefs/waiters")" 1

it "locks is right while it is read slowly and leases come and go"
expect_is "$(control slowly "$MNT" 2000)" ok

it "seek, head, tail and grep work on the files"
expect_is "$(head -c 8 "$MNT/.leasefs/status")" version:
expect_is "$(tail -n 1 "$MNT/.leasefs/status")" "owner: process"
expect_is "$(dd if="$MNT/.leasefs/status" bs=1 skip=9 count=1 2>/dev/null)" "[0-9]"
expect_is "$(dd if="$MNT/.leasefs/status" bs=1 skip=1000000 count=1 2>/dev/null)" ""

if "$PYTHON" -c 'import prometheus_client.parser' 2>/dev/null; then
    it "metrics is Prometheus' text format, with help and type for each"
    expect_is "$(control check "$MNT/.leasefs/metrics")" "ok *"

    it "metrics counts right: acquired, refused, released, requests, waits"
    acquired=$(metric leasefs_acquired_total kind=lease) released=$(metric leasefs_released_total kind=lease)
    refused=$(metric leasefs_refused_total) flocks=$(metric leasefs_requests_total operation=flock result=ok)
    waits=$(metric leasefs_wait_seconds_count)
    for i in 1 2 3 4 5; do says A "acquire('count$i')" ok; done
    says B 'fcntl.flock(op("count1", "RDONLY"), fcntl.LOCK_EX | fcntl.LOCK_NB)' EAGAIN
    says B 'fcntl.flock(op("other", "RDONLY|CREAT"), fcntl.LOCK_EX)' ok
    for i in 1 2 3; do says A "rm('count$i')" ok; done
    expect_is "$(metric leasefs_acquired_total kind=lease)" $((acquired + 5))
    expect_is "$(metric leasefs_released_total kind=lease)" $((released + 3))
    expect_is "$(metric leasefs_held kind=lease)" 2
    expect_is "$(metric leasefs_refused_total)" $((refused + 1))
    expect_is "$(metric leasefs_requests_total operation=flock result=ok)" $((flocks + 1))
    expect_is "$(metric leasefs_wait_seconds_count)" "$waits"
    expect_is "$(metric leasefs_connected)" 1
    says A 'rm("count4"); rm("count5")' ok
fi

it "the log says who broke whose lock"
says A 'acquire("bro\nken")' ok
says B 'put("bro\nken", "break", "1")' ok
expect eventually 5 in_log "bro.x0aken: the lock of .* \(pid ${actor_pid[A]}, uid 0, host $(uname -n)\) was broken by .* \(pid ${actor_pid[B]}, uid 0\)"

it "the log says whose lease ran out since its owner had died"
actor C
dead=${actor_pid[C]}
says C 'acquire("orphan")' ok
pause 1.2 # after its first second nobody inherits it
end_actor C
expect eventually 10 absent orphan
expect eventually 5 in_log "orphan: lease expired: its owner, .* \(pid $dead, .*\), (crashed or was killed|exited without removing it)"
expect_is "$(grep '^leasefs_expired_total{kind="lease"}' "$MNT/.leasefs/metrics")" '* 1'

it "no lock runs out because the daemon was stopped, and the log has no warning"
says A 'g = op("stopped", "RDONLY|CREAT"); fcntl.flock(g, fcntl.LOCK_EX)' ok
kill -STOP "$DAEMON"
pause 1.5 # longer than the term
kill -CONT "$DAEMON"
says B 'h = op("stopped", "RDONLY"); fcntl.flock(h, fcntl.LOCK_EX | fcntl.LOCK_NB)' EAGAIN
expect_is "$(attribute stopped owner)" "* ${actor_pid[A]} 0 *"
expect_not in_log "warning: stopped: "

it "log=error leaves the rest out, log=debug tells more"
end_actor A
end_actor B
unmount "$MNT"
mount_memory log=error
says_nothing() { [ ! -s "$LOG" ]; }
actor D
says D 'acquire("x"); put("x", "break", "1")' ok
expect absent x
expect says_nothing
unmount "$MNT"
mount_memory log=debug
actor E
says E 'acquire("y"); put("y", "ttl", "100ms")' ok
expect eventually 5 in_log "debug: y: the lock of .* \(pid ${actor_pid[E]}, .* ended with its term"
expect_is "$("$LEASEFS" -f -o log=loud memory "$MNT" 2>&1)" "*log= takes error, warning, notice, info or debug"
unmount "$MNT"

# cycles COUNT CPU: O_EXCL, close, unlink, on that CPU
cycles() {
    taskset -c "$2" "$PYTHON" -c '
import os, sys
for _ in range(int(sys.argv[2])):
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(sys.argv[1])' "$MNT/cycle" "$1"
}
hits_come() { cycles 500 "${cpus[0]}" && [ "$(metric leasefs_spin_hits_total)" -gt 0 ]; }
asleep() { grep -q '^State:[[:space:]]S' "/proc/$DAEMON/status"; }
on_other_cpu() { # the daemon; it has looked at where it may run before
    local task
    for task in "/proc/$DAEMON/task"/*; do taskset -pc "${cpus[-1]}" "${task##*/}" >/dev/null; done
}
mapfile -t cpus < <("$PYTHON" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')

it "on two CPUs requests that follow each other are awaited awake, and an idle daemon sleeps"
mount_memory
if [ "${#cpus[@]}" -gt 1 ]; then
    on_other_cpu
    expect eventually 60 hits_come
    hits=$(metric leasefs_spin_hits_total)
    expect [ "$hits" -le "$(metric leasefs_spins_total)" ]
else
    cycles 500 "${cpus[0]}"
    expect_is "$(metric leasefs_spins_total)" 0
fi
expect eventually 20 constantly 300 asleep
unmount "$MNT"

it "with spin=0 none is, nor where the daemon has one CPU"
mount_memory spin=0
on_other_cpu
cycles 2000 "${cpus[0]}"
expect_is "$(metric leasefs_spins_total)" 0
unmount "$MNT"
mount_backend memory "" taskset -c "${cpus[-1]}"
cycles 2000 "${cpus[0]}"
expect_is "$(metric leasefs_spins_total)" 0
unmount "$MNT"

it "the daemon follows a thread that sends all requests, and lets go when others do"
followed() { "$PYTHON" -c '
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
end = time.monotonic() + 0.3
while time.monotonic() < end:
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.flock(fd, fcntl.LOCK_UN)' "$MNT/followed" && [ "$(metric leasefs_follows_total)" -gt 0 ]; }
allowed() { taskset -pc "$DAEMON" | sed 's/.*: //'; }
priority() { ps -o ni= -p "$DAEMON" | tr -d ' '; }
release_two() { # two at once, each with a file of its own
    cycles 300 "${cpus[0]}" &
    timeout 2 flock -n "$MNT/other" true
    wait $!
    [ "$(allowed)" = "$free" ] && [ "$(priority)" = 0 ]
}
rests() { # it has not woken for a second
    local before
    before=$(wakeups)
    pause 1
    [ "$(wakeups)" = "$before" ]
}
mount_memory sandbox=no # which keeps the right to raise the priority
if [ "${#cpus[@]}" -gt 1 ] && nice -n -10 true 2>/dev/null; then
    free=$(allowed)
    expect eventually 60 followed
    expect [ "$(metric leasefs_follow_moves_total)" -ge "$(metric leasefs_follows_total)" ]
    expect eventually 60 release_two
fi
expect eventually 20 rests
unmount "$MNT"

it "it ends on a signal while it follows, also if its parent has blocked SIGALRM"
for block in "" "env --block-signal=ALRM"; do
    # shellcheck disable=SC2086 # the words of a command
    mount_backend memory sandbox=no $block
    [ "${#cpus[@]}" -eq 1 ] || ! nice -n -10 true 2>/dev/null || expect eventually 60 followed
    kill "$DAEMON"
    expect eventually 5 gone "$DAEMON"
done

it "a term that ends, and an owner that dies, are seen while it awaits the next request of who is followed"
unseen() { # CAN-FOLLOW
    "$PYTHON" -c '
import ctypes, fcntl, os, select, sys, time
libc, daemon, can = ctypes.CDLL(None), int(sys.argv[2]), sys.argv[3] == "yes"
events, fd = libc.inotify_init(), os.open(sys.argv[1] + "/followed", os.O_RDWR | os.O_CREAT)
def ask(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fcntl.flock(fd, fcntl.LOCK_EX)
        fcntl.flock(fd, fcntl.LOCK_UN)
def acquire(name):
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
def expect_end(name):
    if not select.select([events], [], [], 10)[0]:
        print(name)
    else:
        os.read(events, 4096)
followed = 0
for i in range(200):
    name = "%s/term%d" % (sys.argv[1], i)
    acquire(name)
    libc.inotify_add_watch(events, name.encode(), 0x400) # IN_DELETE_SELF
    os.setxattr(name, "user.lease.ttl", b"300ms")
    ask(0.02 + 0.01 * (i % 20))
    followed += len(os.sched_getaffinity(daemon)) == 1
    expect_end(name)
    if followed == 5 or not can:
        break
else:
    print("it follows nobody")
name = sys.argv[1] + "/owner"
child = os.fork()
if child == 0:
    acquire(name)
    time.sleep(100)
time.sleep(1.5) # the owner is final after a second
libc.inotify_add_watch(events, name.encode(), 0x400)
ask(0.1)
os.kill(child, 9)
expect_end(name)
' "$MNT" "$DAEMON" "$1" 2>&1
}
mount_memory ttl=500ms,sandbox=no
if [ "${#cpus[@]}" -gt 1 ] && nice -n -10 true 2>/dev/null; then
    expect_is "$(unseen yes)" ""
else
    expect_is "$(unseen no)" ""
fi
unmount "$MNT"

it "with follow=no it does not"
mount_memory follow=no,sandbox=no
for _ in 1 2 3; do followed || true; done
expect_is "$(metric leasefs_follows_total)" 0
unmount "$MNT"

it "whoever may read the root may read .leasefs, others may not"
mount_memory allow_other,mode=0700
expect_is "$(error_of setpriv --reuid=65534 --clear-groups cat "$MNT/.leasefs/status")" "Permission denied"
chmod 711 "$MNT"
expect_is "$(error_of setpriv --reuid=65534 --clear-groups cat "$MNT/.leasefs/status")" "Permission denied"
chmod 755 "$MNT"
expect_is "$(setpriv --reuid=65534 --clear-groups sed -n 's/^backend: //p' "$MNT/.leasefs/status")" memory
expect_is "$(error_of setpriv --reuid=65534 --clear-groups touch "$MNT/.leasefs/x")" "Permission denied"
unmount "$MNT"

it "a local store shows its directory and its journal"
mount_local "$TEST_DIR/store"
expect_is "$(fact address)" "local:$TEST_DIR/store"
expect_is "$(fact sync)" no
before=$(fact journal-bytes)
touch "$MNT/z"
expect [ "$(fact journal-bytes)" -gt "$before" ]
rm "$MNT/z"

it "status shows the TTL in force, and the log warns of an option that has no effect"
expect setfattr -n user.lease.ttl -v 7 "$MNT"
expect_is "$(fact ttl)" 7.000
point=$MNT
crash "$point"
mount_at "$point" "local:$TEST_DIR/store" ttl=90
expect_is "$(fact ttl)" 7.000
expect grep -q 'option ttl= (90.000 s) has no effect: .* 7.000 s' "$LOG"
expect setfattr -n user.lease.ttl -v auto "$MNT"
expect_is "$(fact ttl)" 90.000
for options in ttl=90 ""; do
    crash "$point"
    mount_at "$point" "local:$TEST_DIR/store" "$options"
    expect_not grep 'has no effect' "$LOG"
    setfattr -n user.lease.ttl -v 7 "$MNT" # for the mount without the option
done

finish
