#!/bin/bash
# Handle locks by flock(2): what they hold, show, exclude and convert, and how they end.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B
actor C

opened() { # NAME: a and b are handles of A and B on it
    says A "a = op('$1', 'RDWR|CREAT')" ok
    says B "b = op('$1', 'RDONLY|CREAT')" ok
}
closed() {
    says A 'os.close(a)' ok
    says B 'os.close(b)' ok
}

it "flock of a free name acquires a handle lock: a held file of kind flock"
says A 'a = op("l", "RDWR|CREAT")' ok
says A 'flock(a, "EX")' ok
expect exists l
expect_is "$(attribute l state)" held
expect_is "$(attribute l kind)" flock
expect_is "$(attribute l mode)" exclusive
expect_is "$(attribute l owner)" "* ${actor_pid[A]} 0 *"

it "another's flock with LOCK_NB is EAGAIN, exclusive or shared"
says B 'b = op("l", "RDONLY")' ok
says B 'flock(b, "EX|NB")' EAGAIN
says B 'flock(b, "SH|NB")' EAGAIN

it "another handle of the same process is another"
says A 'c = op("l")' ok
says A 'flock(c, "EX|NB")' EAGAIN
says A 'os.close(c)' '*'
expect exists l

it "LOCK_UN releases: the file is gone, the handle stays good"
says A 'flock(a, "UN")' ok
expect absent l
says A 'flock(a, "UN")' ok
says A 'flock(a, "EX|NB")' ok
expect exists l
says A 'flock(a, "EX")' ok

it "the last close releases"
says A 'd = os.dup(a); os.close(a)' ok
expect exists l
says B 'flock(b, "EX|NB")' EAGAIN
says A 'os.close(d)' ok
expect eventually 2 absent l

it "a handle that was ever asked for a lock does not acquire a lease by being closed"
says B 'flock(b, "EX|NB")' ok
says B 'flock(b, "UN")' ok
says B 'os.close(b)' ok
expect constantly 200 absent l
says A 'a = op("l", "WRONLY|CREAT"); flock(a, "EX"); flock(a, "UN"); os.close(a)' ok
expect constantly 200 absent l
says A 'a = op("l", "WRONLY|CREAT"); flock(a, "EX"); os.close(a)' ok
expect eventually 2 absent l
expect constantly 200 absent l

it "a handle lock lasts as long as its handle: longer than the provisional second"
says A 'a = op("long", "WRONLY|CREAT"); flock(a, "EX")' ok
expect constantly 1300 exists long
says A 'os.close(a)' ok

it "shared locks go together, and exclude an exclusive one"
opened sh
says A 'flock(a, "SH|NB")' ok
says B 'flock(b, "SH|NB")' ok
expect_is "$(attribute sh mode)" shared
expect_is "$(attribute sh owner | wc -l)" '@(1|2)'
says C 'c = op("sh", "RDWR"); flock(c, "EX|NB")' EAGAIN
says A 'flock(a, "UN")' ok
says C 'flock(c, "EX|NB")' EAGAIN
says B 'flock(b, "UN")' ok
says C 'flock(c, "EX|NB")' ok
says C 'os.close(c)' ok
closed

it "user.lease.owner has a line for each of the shared holders"
opened two
says A 'flock(a, "SH")' ok
says B 'flock(b, "SH")' ok
owners=$(attribute two owner)
expect_is "$owners" "*${actor_pid[A]}*"
expect_is "$owners" "*${actor_pid[B]}*"
closed
expect eventually 2 absent two

it "conversions: exclusive to shared lets others in, shared to exclusive needs to be alone"
opened conv
says A 'flock(a, "EX")' ok
says B 'flock(b, "SH|NB")' EAGAIN
says A 'flock(a, "SH|NB")' ok
says B 'flock(b, "SH|NB")' ok
says A 'flock(a, "EX|NB")' EAGAIN
says B 'flock(b, "EX|NB")' EAGAIN
expect_is "$(attribute conv owner)" "*${actor_pid[A]}*"
says B 'flock(b, "UN")' ok
says B 'flock(b, "EX|NB")' EAGAIN
says A 'flock(a, "EX|NB")' ok
expect_is "$(attribute conv mode)" exclusive
closed

it "shared to exclusive waits with the lock kept, also when that is interrupted; the second that waits for it is refused"
has_waiters() { [ "$(attribute "$1" waiters)" = "$2" ]; }
opened up
says A 'flock(a, "SH"); os.write(a, b"text")' '*'
token=$(attribute up token)
says B 'flock(b, "SH")' ok
tell A 'flock(a, "EX")'
expect eventually 2 has_waiters up 1
kill -USR1 "${actor_pid[A]}"
expect_is "$(hear A)" EINTR
expect has_waiters up 0
expect_is "$(attribute up owner)" "*${actor_pid[A]}*"
tell A 'flock(a, "EX")'
expect eventually 2 has_waiters up 1
says B 'flock(b, "EX")' EDEADLK
says B 'flock(b, "EX|NB")' EAGAIN
expect_is "$(attribute up owner)" "*${actor_pid[B]}*"
says B 'flock(b, "UN")' ok
expect_is "$(hear A)" ok
expect_is "$(attribute up mode)" exclusive
expect_is "$(attribute up token)" "$token"
expect_is "$(cat "$MNT/up")" text
closed

it "an inherited descriptor is the same handle: a child may unlock, and keeps it held"
says A 'a = op("inh", "RDWR|CREAT"); flock(a, "EX")' ok
says A 'p = fork("pass"); os.close(a)' ok
expect constantly 200 exists inh
says B 'b = op("inh", "RDONLY"); flock(b, "EX|NB")' EAGAIN
says A 'kill(p); reap(p)' ok
expect eventually 2 absent inh
says B 'flock(b, "EX|NB"); os.close(b)' ok
says A 'a = op("inh", "RDWR|CREAT"); flock(a, "EX")' ok
says A 'child("flock(a, \"UN\")")' ok
expect absent inh
says A 'os.close(a)' ok

it "the death of the holder releases"
actor D
says D 'd = op("death", "RDWR|CREAT"); flock(d, "EX")' ok
expect exists death
end_actor D
expect eventually 2 absent death

it "a handle lock excludes leases on the name"
says A 'a = op("ex", "RDWR|CREAT"); flock(a, "EX")' ok
says B 'acquire("ex")' EEXIST
says B 'ln("t", "ex")' EEXIST
says B 'b = op("ex", "RDWR|CREAT")' ok
says B 'write(b, "x")' EBUSY
says B 'utime(b)' EBUSY
says B 'close(b)' EBUSY
expect_not touch "$MNT/ex" 2>/dev/null
expect_not busybox touch "$MNT/ex" 2>/dev/null

it "the holder of a handle lock writes and reads its content; others read it"
says A 'write(a, "pid 17")' ok
expect_is "$(cat "$MNT/ex")" "pid 17"
says A 'truncate(a, 3)' ok
says B 'content("ex")' pid
says A 'os.close(a)' ok
expect eventually 2 absent ex

it "a lease excludes flock of another: EAGAIN, or waits for its end"
says A 'acquire("lease")' ok
says B 'b = op("lease", "RDONLY"); flock(b, "EX|NB")' EAGAIN
says A 'child("flock(op(\"lease\", \"RDONLY\"), \"EX|NB\")")' EAGAIN
tell B 'flock(b, "EX")'
expect eventually 3 eval '[ "$(attribute lease waiters)" = 1 ]'
says A 'rm("lease")' ok
expect_is "$(hear B)" ok
expect_is "$(attribute lease kind)" flock
says B 'os.close(b)' ok

it "flock waits for a lease to expire, too"
says A 'acquire("lease"); put("lease", "ttl", "400ms")' ok
says B 'b = op("lease", "RDONLY"); flock(b, "EX")' ok
expect_is "$(attribute lease kind)" flock
says B 'os.close(b)' ok

it "flock on a handle that the owner itself opened turns its lease into a handle lock"
says A 'a = op("turn", "RDWR|CREAT|EXCL")' ok
token=$(attribute turn token)
says A 'flock(a, "EX|NB")' ok
expect_is "$(attribute turn kind)" flock
expect_is "$(attribute turn token)" "$token"
says A 'os.close(a)' ok
expect eventually 2 absent turn
says A 'acquire("turn")' ok
says A 'a = op("turn", "RDWR"); flock(a, "EX|NB")' ok
expect_is "$(attribute turn kind)" flock
says A 'flock(a, "UN")' ok
expect absent turn
says A 'os.close(a)' ok

it "flock 9 in a script turns the script's own lease, though a child asks for it, and not another's"
kind='getfattr --only-values --absolute-names -n user.lease.kind "$1"'
for shell in bash dash "busybox sh"; do
    command -v "${shell%% *}" >/dev/null || continue
    for how in 'set -C; exec 9>"$1"' 'touch "$1"; exec 9>"$1"' 'set -C; : >"$1"; exec 9<"$1"'; do
        # shellcheck disable=SC2086 # busybox and its sh are two words
        expect_is "$(timeout 10 $shell -c "$how; flock 9 && $kind" sh "$MNT/own")" flock "$shell: $how"
        expect eventually 2 absent own
    done
done
expect timeout 10 bash -c 'set -C; exec 9>"$1"; sh -c "sh -c \"flock 9\""' sh "$MNT/own" # nested scripts
expect eventually 2 absent own
expect timeout 10 bash -c 'set -C; exec 9>"$1"; flock 9 & wait $!' sh "$MNT/own" # in the background
expect eventually 2 absent own
expect_not timeout 10 bash -c 'set -C; exec 9>"$1"; flock -n "$1" true || exit 1; :' sh "$MNT/own" # a handle of the child's own
expect rm "$MNT/own" # of a dead owner
expect_is "$(timeout 10 bash -c 'exec 9>"$1"; flock 9; getfattr --only-values --absolute-names -n user.lease.owner "$1"; echo " $$"' \
    sh "$MNT/own" | awk '{ print $2 == $NF }')" 1 "flock(1) has asked for its shell"
expect eventually 2 absent own

it "a child that turns the lease goes before those that wait for it, and they get what it leaves"
says A 'a = op("line", "WRONLY|CREAT|EXCL")' ok
says B 'b = op("line", "RDONLY")' ok
tell B 'flock(b, "EX")'
expect eventually 5 eval '[ "$(attribute line waiters)" = 1 ]'
says A 'child("flock(a, \"EX\")")' ok
expect_is "$(attribute line kind)" flock
expect_is "$(attribute line waiters)" 1
says A 'os.close(a)' ok
expect_is "$(hear B 5)" ok
says B 'os.close(b)' ok

it "flock on a handle that wrote turns its lease into a handle lock, with its content"
says A 'a = op("wrote", "RDWR|CREAT"); write(a, "w"); flock(a, "EX|NB")' ok
expect_is "$(attribute wrote kind)" flock
expect_is "$(cat "$MNT/wrote")" w
says A 'os.close(a)' ok
expect eventually 2 absent wrote

it "a non-blocking flock that meets a provisional lease of another handle waits for the outcome"
says A 'a = op("outcome", "RDWR|CREAT")' ok
says B 'b = op("outcome", "RDONLY"); flock(b, "EX|NB")' ok
expect_is "$(attribute outcome kind)" flock
says B 'os.close(b)' ok
says A 'a = op("outcome2", "RDWR|CREAT")' ok
says B 'b = op("outcome2", "RDONLY")' ok
tell B 'flock(b, "EX|NB")'
pause 0.1
says A 'flock(a, "EX|NB")' ok
expect_is "$(hear B)" EAGAIN
closed

it "unlink by the holder releases; the waiter goes on to the same name, not to a second inode"
opened un
says A 'flock(a, "EX")' ok
tell B 'flock(b, "EX")'
expect eventually 3 eval '[ "$(attribute un waiters)" = 1 ]'
says A 'rm("un")' ok
expect_is "$(hear B)" ok
expect exists un
expect_is "$(attribute un owner)" "* ${actor_pid[B]} 0 *"
says B 'stat(b, "ino") == stat("un", "ino")' True
says A 'c = op("un", "RDONLY"); flock(c, "EX|NB")' EAGAIN
says A 'os.close(c)' ok
says A 'flock(a, "EX|NB")' 'E*'
closed
expect eventually 2 absent un

it "unlink of a handle lock: a child of the holder may, another may not"
says A 'a = op("un2", "RDWR|CREAT"); flock(a, "EX")' ok
says B 'rm("un2")' EPERM
expect exists un2
says A 'child("rm(\"un2\")")' ok
expect absent un2
says A 'os.close(a)' ok

it "the file of a waiting handle is readable, and waiters are counted; state reads waiting for who waits"
opened count
says A 'flock(a, "EX")' ok
tell B 'flock(b, "EX")'
expect eventually 3 eval '[ "$(attribute count waiters)" = 1 ]' # before C
says C 'c = op("count", "RDONLY")' ok
tell C 'flock(c, "SH")'
expect eventually 3 eval '[ "$(attribute count waiters)" = 2 ]'
expect_is "$(attribute "" waiters)" 2
says A 'flock(a, "UN")' ok
expect_is "$(hear B)" ok
says B 'flock(b, "UN")' ok
expect_is "$(hear C)" ok
expect_is "$(attribute count waiters)" 0
says C 'os.close(c)' ok
closed

it "a handle lock broken by an administrator is lost: ESTALE, LOCK_UN and close succeed"
says A 'a = op("lost", "RDWR|CREAT"); flock(a, "EX"); write(a, "x")' ok
says B 'put("lost", "break", "1")' ok
expect absent lost
says A 'write(a, "y")' ESTALE
says A 'read(a)' ESTALE
says A 'os.fsync(a)' ESTALE
says A 'utime(a)' ESTALE
says A 'get(a, "state")' lost
says A 'flock(a, "UN")' ok

it "a new flock on a handle that lost its lock starts afresh"
says A 'flock(a, "EX|NB")' ok
expect_is "$(attribute lost kind)" flock
says A 'write(a, "z")' ok
says A 'get(a, "state")' held
says A 'os.close(a)' ok
expect eventually 2 absent lost

it "after a crash of the daemon and a restart leases are there, and handle locks as long as their files are open"
mkdir -m 700 "$TEST_DIR/store"
mount_local "$TEST_DIR/store"
actor L
says L 'acquire("lease"); a = op("flock", "RDWR|CREAT"); flock(a, "EX")' ok
point=$MNT
crash "$point"
mount_at "$point" "$BACKEND" ""
expect exists lease
expect exists flock
says L 'os.close(a)' ENOTCONN # it is closed all the same
says L 'b = op("flock", "RDWR|CREAT"); a = None' ok
expect eventually 6 answers L 'flock(b, "EX|NB")' ok

it "flock(1): -n refuses, -w gives up in time, a command runs with the lock and releases it"
MNT=$point
says L 'flock(b, "EX")' ok
expect_not flock -n "$MNT/flock" true
now
T=$NOW
expect_not flock -w 1 "$MNT/flock" true
now
expect_between 900 $((NOW - T)) $((1000 + SLACK)) "milliseconds of -w 1"
says L 'flock(b, "UN")' ok
expect flock -n "$MNT/flock" true
expect flock -s "$MNT/flock" true
expect flock "$MNT/cmd" test -e "$MNT/cmd"
expect eventually 2 absent cmd

it "exec 9>L; flock -n 9 || exit 1: one of two scripts goes on, the other ends"
start bash -c 'exec 9>"$1"; flock -n 9 || exit 1; : >"$2"; exec sleep 60' _ "$MNT/idiom" "$TEST_DIR/first"
first=$STARTED
expect eventually 5 [ -e "$TEST_DIR/first" ]
expect_not timeout 10 bash -c 'exec 9>"$1"; flock -n 9 || exit 1' _ "$MNT/idiom"
expect constantly 1200 exists idiom
expect_not timeout 10 bash -c 'exec 9>"$1"; flock -n 9 || exit 1' _ "$MNT/idiom"
end_process "$first"
expect eventually 2 absent idiom
expect timeout 10 bash -c 'exec 9>"$1"; flock -n 9 || exit 1' _ "$MNT/idiom"
expect eventually 2 absent idiom

it "exec 9>L; flock 9 waits for a lease that is older than a second"
says L 'acquire("older")' ok
pause 1.1
start bash -c 'exec 9>"$1"; flock 9; : >"$2"' _ "$MNT/older" "$TEST_DIR/older"
waiter=$STARTED
expect eventually 5 eval '[ "$(attribute older waiters)" = 1 ]'
expect_not [ -e "$TEST_DIR/older" ]
says L 'rm("older")' ok
expect eventually 5 [ -e "$TEST_DIR/older" ]
expect eventually 5 gone "$waiter"
expect eventually 2 absent older

finish
