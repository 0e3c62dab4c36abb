#!/bin/bash
# Waiting for a lock: first come, first served; interrupts; loss and poll.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A

it "waiters are served in the order in which they came"
says A 'a = op("fifo", "RDWR|CREAT"); flock(a, "EX")' ok
: >"$TEST_DIR/order"
for i in {1..12}; do
    start flock "$MNT/fifo" sh -c 'echo "$1" >>"$2"' _ "$i" "$TEST_DIR/order"
    expect eventually 5 waiters fifo "$i"
done
says A 'flock(a, "UN")' ok
expect eventually 10 eval '[ "$(wc -l <"$TEST_DIR/order")" -eq 12 ]'
expect_is "$(tr '\n' ' ' <"$TEST_DIR/order")" "1 2 3 4 5 6 7 8 9 10 11 12 "
expect eventually 5 absent fifo
says A 'os.close(a)' ok

it "a thousand processes that wait are served in the order in which they came, one at a time"
says A 'a = op("thousand", "RDWR|CREAT"); flock(a, "EX")' ok
start "$PYTHON" -S -E -c '
import fcntl, os, sys
path, inside = sys.argv[1:]
for i in range(1000):
    if os.fork() == 0:
        f = os.open(path, os.O_RDONLY)
        fcntl.flock(f, fcntl.LOCK_EX)
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # nobody else is
        os.write(1, b"%d\n" % i)
        os.unlink(inside)
        os._exit(0)
    while os.getxattr(path, "user.lease.waiters") != b"%d" % (i + 1):
        pass
for _ in range(1000):
    os.wait()
' "$MNT/thousand" "$TEST_DIR/inside" >"$TEST_DIR/thousand"
expect eventually 60 waiters thousand 1000
says A 'flock(a, "UN")' ok
expect eventually 60 absent thousand
expect cmp "$TEST_DIR/thousand" <(seq 0 999)
says A 'os.close(a)' ok

it "shared waiters that are next to each other are granted together, one behind an exclusive waiter is not"
for name in S1 S2 E S3; do
    actor $name
    says $name 'f = op("run", "RDONLY|CREAT")' ok
done
says A 'a = op("run", "RDWR|CREAT"); flock(a, "EX")' ok
tell S1 'flock(f, "SH")'
expect eventually 3 waiters run 1
tell S2 'flock(f, "SH")'
expect eventually 3 waiters run 2
tell E 'flock(f, "EX")'
expect eventually 3 waiters run 3
tell S3 'flock(f, "SH")'
expect eventually 3 waiters run 4
says A 'flock(a, "UN")' ok
expect_is "$(hear S1)" ok
expect_is "$(hear S2)" ok
expect_is "$(attribute run waiters)" 2
says A 'flock(a, "SH|NB")' EAGAIN
says S1 'flock(f, "UN")' ok
says S2 'flock(f, "UN")' ok
expect_is "$(hear E)" ok
expect_is "$(attribute run waiters)" 1
says E 'flock(f, "UN")' ok
expect_is "$(hear S3)" ok
says S3 'os.close(f)' ok
for name in S1 S2 E; do says $name 'os.close(f)' ok; done
says A 'os.close(a)' ok
expect eventually 2 absent run

it "a signal interrupts a wait at once: EINTR"
says A 'a = op("intr", "RDWR|CREAT"); flock(a, "EX")' ok
says E 'f = op("intr", "RDONLY")' ok
for call in 'flock(f, "EX")' 'record(f, "SETLKW", "RDLCK")' 'record(f, "SETLKW", "RDLCK", 0, 0, True)'; do
    tell E "$call"
    expect eventually 3 waiters intr 1
    now
    T=$NOW
    kill -USR1 "${actor_pid[E]}"
    expect_is "$(hear E)" EINTR
    now
    expect_between 0 $((NOW - T)) 500 "milliseconds"
    expect eventually 2 waiters intr 0
done

it "kill -9 of a waiter: gone at once, never granted, the next one is"
start flock "$MNT/intr" sh -c ': >"$1"' _ "$TEST_DIR/killed"
killed=$STARTED
disown "$killed" # bash need not tell that it was killed
expect eventually 3 waiters intr 1
tell E 'flock(f, "EX")'
expect eventually 3 waiters intr 2
now
T=$NOW
kill -9 "$killed"
expect eventually 3 gone "$killed"
expect eventually 3 waiters intr 1
now
expect_between 0 $((NOW - T)) 500 "milliseconds"
says A 'flock(a, "UN")' ok
expect_is "$(hear E)" ok
expect_not [ -e "$TEST_DIR/killed" ]
says E 'os.close(f)' ok

it "Ctrl-C (SIGINT) ends flock(1) that waits, flock -w 1 gives up after a second"
says A 'flock(a, "EX|NB")' ok
start bash -c 'trap - INT; exec flock "$1" true' _ "$MNT/intr"
expect eventually 3 waiters intr 1
kill -TERM "$STARTED"
expect eventually 3 gone "$STARTED"
now
T=$NOW
expect_not flock -w 1 "$MNT/intr" true
now
expect_between 900 $((NOW - T)) $((1000 + SLACK)) "milliseconds of -w 1"
expect eventually 2 waiters intr 0
says A 'os.close(a)' ok

it "a hundred waiters killed at random while the lock is handed on: the rest are all served, none twice"
says A 'a = op("storm", "RDWR|CREAT"); flock(a, "EX")' ok
seed=${E2E_SEED:-$RANDOM}
RANDOM=$seed
say "seed $seed"
storm=()
: >"$TEST_DIR/served"
for i in {1..100}; do
    start flock "$MNT/storm" sh -c 'echo "$1" >>"$2"' _ "$i" "$TEST_DIR/served"
    storm+=("$STARTED")
    disown "$STARTED"
done
expect eventually 20 waiters storm 100
says A 'flock(a, "UN")' ok
dead=0
for pid in "${storm[@]}"; do
    if ((RANDOM % 3 == 0)); then kill -9 "$pid" 2>/dev/null && dead=$((dead + 1)); fi
done
storm_over() {
    local pid
    for pid in "${storm[@]}"; do gone "$pid" || return 1; done
}
expect eventually 20 storm_over
expect_is "$(sort "$TEST_DIR/served" | uniq -d)" "" "served twice"
expect [ "$(wc -l <"$TEST_DIR/served")" -ge $((100 - dead)) ]
expect eventually 3 absent storm
says A 'os.close(a)' ok

it "a waiter that is stopped stalls nobody; when it goes on it waits on, and gets the lock"
says A 'a = op("stop", "RDWR|CREAT"); flock(a, "EX")' ok
says E 'f = op("stop", "RDONLY")' ok
tell E 'flock(f, "EX")'
expect eventually 3 waiters stop 1
kill -STOP "${actor_pid[E]}"
expect eventually 10 grep -q '^State:.*T (stopped)' "/proc/${actor_pid[E]}/status" # else it may be granted still, and hold
says A 'flock(a, "UN")' ok
free_or_stopped() { answers A 'flock(a, "EX|NB")' ok; } # a grant that crossed the stop is given back
expect eventually 3 free_or_stopped
kill -CONT "${actor_pid[E]}"
expect eventually 3 waiters stop 1
says A 'flock(a, "UN")' ok
expect_is "$(hear E)" ok
says E 'os.close(f)' ok
says A 'os.close(a)' ok

it "poll: POLLERR and POLLHUP when the lock was lost"
says A 'a = op("poll", "RDWR|CREAT"); flock(a, "EX")' ok
says A 'poll(a, "IN|OUT|PRI", 0)' '!(*ERR*)'
actor P
tell A 'poll(a, "PRI", 10000)'
says P 'put("poll", "break", "1")' ok
expect_is "$(hear A)" '*ERR|HUP'
says A 'flock(a, "UN"); os.close(a)' ok

it "poll: a lease whose term ran out wakes its handle with POLLERR and POLLHUP"
says A 'a = op("poll2", "RDWR|CREAT|EXCL"); put("poll2", "ttl", "500ms")' ok
says A 'poll(a, "PRI", 10000)' '*ERR|HUP'
says A 'os.close(a)' ok

it "poll: POLLPRI when somebody starts to wait for a lock that one holds"
says A 'a = op("poll3", "RDWR|CREAT"); flock(a, "EX")' ok
tell A 'poll(a, "PRI", 10000)'
says P 'p = op("poll3", "RDONLY")' ok
tell P 'flock(p, "EX")'
expect_is "$(hear A)" '*PRI*'
says A 'flock(a, "UN")' ok
expect_is "$(hear P)" ok
says P 'os.close(p)' ok
says A 'os.close(a)' ok

it "the wait costs the daemon no thread"
says A 'a = op("threads", "RDWR|CREAT"); flock(a, "EX")' ok
before=$(find "/proc/$DAEMON/task" -mindepth 1 -maxdepth 1 | wc -l)
pids=()
for i in {1..40}; do
    start flock "$MNT/threads" true
    pids+=("$STARTED")
done
expect eventually 10 waiters threads 40
expect_is "$(find "/proc/$DAEMON/task" -mindepth 1 -maxdepth 1 | wc -l)" "$before" threads
says A 'os.close(a)' ok
for pid in "${pids[@]}"; do wait "$pid"; done
expect eventually 5 absent threads

finish
