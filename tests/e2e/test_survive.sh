#!/bin/bash
# Handle locks outlive their daemon: killed, and started again as the shipped unit does, while processes keep their
# descriptors.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip_all "needs root"
sees_all || skip_all "needs CAP_SYS_PTRACE"

OPTIONS=allow_other,ttl=4
case ${E2E_STORE:-local} in
redis)
    # shellcheck source=redis.sh
    . "$(dirname "$0")/redis.sh"
    redis_start
    STORE=$REDIS_URI
    ;;
postgresql)
    # shellcheck source=postgresql.sh
    . "$(dirname "$0")/postgresql.sh"
    postgresql_start
    STORE=$POSTGRESQL_URI
    ;;
zookeeper)
    # shellcheck source=zookeeper.sh
    . "$(dirname "$0")/zookeeper.sh"
    zookeeper_start
    zookeeper_root survive
    STORE=$ZOOKEEPER_URI
    ;;
*)
    mkdir -m 700 "$TEST_DIR/store"
    STORE=local:$TEST_DIR/store
    ;;
esac

# The next daemon, over the dead mount of this one.
restart() {
    mount_index "$point"
    end_process "$DAEMON"
    mount_daemons[INDEX]=
    mount_at "$point" "$STORE" "$OPTIONS"
}

owners() { attribute "$1" owner | awk '{ print $2 }' | sort -n | tr '\n' ' '; }
owned_by() { [ "$(owners "$1")" = "$2 " ]; } # NAME PID

mount_backend "$STORE" "$OPTIONS"
point=$MNT
chmod 755 "$TEST_DIR"
actor A
actor B

it "a flock stays its process's, with its token, after kill -9 and a restart; others are refused"
says A 'f = op("flock", "RDWR|CREAT"); flock(f, "EX")' ok
token=$(attribute flock token)
restart
expect_is "$(attribute flock state)" held
expect_is "$(attribute flock kind)" flock
expect_is "$(attribute flock token)" "$token"
expect eventually 5 owned_by flock "${actor_pid[A]}"
expect_is "$(attribute flock owner)" "*\\(daemon restarted\\)"
expect_is "$(cut -f1-2,5,7 "$MNT/.leasefs/locks" | tail -1)" "flock	flock	${actor_pid[A]}	*\\(daemon restarted\\)"
expect_is "$(sed -n 's/^leasefs_surviving_locks //p' "$MNT/.leasefs/metrics")" 1
if [ -x "$(dirname "$LEASEFS")/leaserun" ]; then
    expect_is "$("$(dirname "$LEASEFS")/leaserun" --status "$MNT/flock")" "*held*${actor_pid[A]}*\\(daemon restarted\\)*"
fi
says B 'b = op("flock", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
says B 'acquire("flock")' EEXIST
says B 'rm("flock")' EPERM
says A 'write(f, "x")' ENOTCONN

it "and stays so over a second kill, past its term"
restart
pause 5
says B 'close(b)' ENOTCONN # it is closed all the same
says B 'b = op("flock", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
expect_is "$(attribute flock token)" "$token"

it "who waits for it is granted it when its descriptor is closed, though its process lives on"
tell B 'flock(b, "EX")'
pause 1.2
says A 'close(f)' ENOTCONN
expect_is "$(hear B 10)" ok
expect owned_by flock "${actor_pid[B]}"
expect [ "$(attribute flock token)" -gt "$token" ]
expect grep -q 'flock: the flock of process .*, which survived its daemon, is released' "$LOG"
says B 'close(b)' ok

it "a record lock keeps its bytes, and only those"
says A 'f = op("bytes", "RDWR|CREAT"); record(f, "SETLKW", "WRLCK", 5, 10)' ok
says A 'record(f, "SETLKW", "RDLCK", 20, 10)' ok
restart
says B 'b = op("bytes", "RDWR|CREAT"); record(b, "SETLK", "WRLCK", 12, 1)' EAGAIN
says B 'record(b, "SETLK", "WRLCK", 25, 1)' EAGAIN
if [ "${E2E_STORE:-}" != zookeeper ]; then # where record locks cover the whole file
    says B 'record(b, "SETLK", "RDLCK", 25, 1)' ok
    says B 'record(b, "SETLK", "WRLCK", 0, 5); record(b, "SETLK", "WRLCK", 40, 5)' ok
fi
says A 'close(f)' ENOTCONN
says B 'record(b, "SETLK", "WRLCK", 0, 50); close(b)' ok

it "an OFD lock does"
says A 'f = op("ofd", "RDWR|CREAT"); record(f, "SETLKW", "WRLCK", 5, 10, ofd=True)' ok
restart
says B 'b = op("ofd", "RDWR|CREAT"); record(b, "SETLK", "WRLCK", 12, 1, ofd=True)' EAGAIN
says A 'close(f)' ENOTCONN
says B 'record(b, "SETLK", "WRLCK", 12, 1, ofd=True); close(b)' ok

it "a descriptor that a child inherited keeps it after its process has ended"
exec 7>"$MNT/inherited"
flock 7
start sleep 300
child=$STARTED
exec 7>&-
restart
expect eventually 5 owned_by inherited "$child"
expect_not flock -n "$MNT/inherited" true
end_process "$child"
expect timeout 10 flock "$MNT/inherited" true
expect eventually 5 absent inherited

it "its end is seen when the last process ends, though nobody asks"
actor C
says C 'f = op("ends", "RDWR|CREAT"); flock(f, "EX")' ok
restart
expect eventually 5 owned_by ends "${actor_pid[C]}"
end_actor C
seen() { [ "$(sed -n 's/^leasefs_surviving_locks //p' "$MNT/.leasefs/metrics")" = 0 ]; }
expect eventually 5 seen

it "a process in another mount namespace keeps it"
# It keeps no copy of what other tests have mounted.
# shellcheck disable=SC2016 # for the other shell
start unshare --mount bash -c 'exec 8>"$1" && flock 8 && : >"$2" &&
    { awk -v own="${1%/*}" '"'"'$3 == "fuse.leasefs" && $2 != own { print $2 }'"'"' /proc/self/mounts | xargs -r umount -l; exec sleep 300; }' \
    _ "$MNT/namespace" "$TEST_DIR/in"
child=$STARTED
expect eventually 5 [ -e "$TEST_DIR/in" ]
restart
expect eventually 5 owned_by namespace "$child"
expect_not flock -n "$MNT/namespace" true
end_process "$child"
expect timeout 10 flock "$MNT/namespace" true

it "a process in another pid namespace keeps it"
# shellcheck disable=SC2016 # for the other shell
start unshare --pid --fork --kill-child bash -c 'exec 8>"$1" && flock 8 && : >"$2" && exec sleep 300' \
    _ "$MNT/pids" "$TEST_DIR/in.pids"
unsharing=$STARTED
expect eventually 5 [ -e "$TEST_DIR/in.pids" ]
child=$(pgrep -P "$unsharing")
restart
expect eventually 5 owned_by pids "$child"
expect_not flock -n "$MNT/pids" true
end_process "$unsharing"
expect timeout 10 flock "$MNT/pids" true

it "another user's process keeps it"
actor U setpriv --reuid=65534 --regid=65534 --clear-groups
says U 'f = op("user", "RDWR|CREAT"); flock(f, "EX")' ok
restart
expect eventually 5 owned_by user "${actor_pid[U]}"
says A 'a = op("user", "RDONLY"); flock(a, "EX|NB")' EAGAIN
says A 'rm("user")' EPERM
says U 'rm("user")' ok
says A 'flock(a, "EX|NB"); close(a)' ok
end_actor U

it "the process itself: EDEADLK while it waits for its own dead descriptor, and the lock once that is closed"
says A 'f = op("self", "RDWR|CREAT"); flock(f, "EX")' ok
restart
says A 'g = op("self", "RDWR|CREAT"); flock(g, "EX")' EDEADLK
says A 'flock(g, "EX|NB")' EAGAIN
says A 'close(f)' ENOTCONN
says A 'flock(g, "EX|NB")' ok
expect_is "$(owners self)" "${actor_pid[A]} "
says A 'close(g)' ok

it "user.lease.resume moves it to a new descriptor: not with an old token, and not for a stranger or a second process"
says A 'f = op("resume", "RDWR|CREAT"); flock(f, "EX")' ok
says B 'b = op("resume", "RDWR|CREAT")' ok
token=$(attribute resume token)
restart
actor S
says S "s = op('resume', 'RDONLY'); put(s, 'resume', $token)" EPERM
says A "g = op('resume', 'RDONLY'); put(g, 'resume', $((token - 1)))" ESTALE
says A "put(g, 'resume', $token)" ok
says B "c = op('resume', 'RDONLY'); put(c, 'resume', $token)" EBUSY
expect_is "$(attribute resume token)" "$token"
expect_is "$(attribute resume owner)" "* ${actor_pid[A]} *"
expect_not grep -q 'daemon restarted' <<<"$(attribute resume owner)"
says A 'close(f)' ENOTCONN
says B 'flock(c, "EX|NB")' EAGAIN
says S 'flock(s, "EX|NB")' EAGAIN
end_actor S
says B 'close(c)' ok

it "a resumed lock survives the next daemon, too, and can be resumed again"
restart
expect eventually 5 owned_by resume "${actor_pid[A]}"
says A "h = op('resume', 'RDONLY'); put(h, 'resume', $token); close(g)" ENOTCONN
says B 'close(b)' ENOTCONN # that of the first daemon
says B 'b = op("resume", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
pause 5 # it is renewed
says B 'flock(b, "EX|NB")' EAGAIN
says A 'flock(h, "UN"); close(h)' ok
says B 'flock(b, "EX|NB"); close(b)' ok
for name in A B; do
    end_actor "$name"
    actor "$name"
done

if [ "${E2E_STORE:-}" = redis ]; then
    it "a lock that is being resumed stays, though its process opens the file once more meanwhile"
    says A 'f = op("again", "RDWR|CREAT"); flock(f, "EX")' ok
    token=$(attribute again token)
    restart
    says A 'g = op("again", "RDONLY"); answers = []' ok
    redis_pause
    says A "w = threading.Thread(target=lambda: answers.append(evaluate('put(g, \"resume\", $token)'))); w.start()" ok
    pause 0.5
    says A 'h = op("again", "RDONLY")' ok
    redis_resume
    says A 'w.join()' ok
    says A 'answers[0]' ok
    expect_is "$(attribute again token)" "$token"
    says A 'close(f)' ENOTCONN
    says B 'b = op("again", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
    says A 'flock(g, "UN"); close(g); close(h)' ok
    says B 'flock(b, "EX|NB"); close(b)' ok
fi

it "a resumed record lock belongs to the new descriptor, with its bytes"
says A 'f = op("bytes", "RDWR|CREAT"); record(f, "SETLKW", "WRLCK", 5, 10)' ok
token=$(attribute bytes token)
restart
says A "g = op('bytes', 'RDWR'); put(g, 'resume', $token)" ok
says A 'close(f)' ENOTCONN
says B 'b = op("bytes", "RDWR|CREAT"); record(b, "SETLK", "WRLCK", 12, 1)' EAGAIN
if [ "${E2E_STORE:-local}" != local ]; then
    says A 'record(g, "SETLK", "UNLCK", 10, 5)' ENOLCK
else
    says A 'record(g, "SETLK", "UNLCK", 10, 5)' ok
    says B 'record(b, "SETLK", "WRLCK", 12, 1)' ok
    says B 'record(b, "SETLK", "WRLCK", 9, 1)' EAGAIN
    says B 'record(b, "SETLK", "UNLCK", 0, 0)' ok
fi
says A 'record(g, "SETLK", "UNLCK", 0, 0)' ok
says B 'record(b, "SETLK", "WRLCK", 9, 1); close(b)' ok
says A 'close(g)' ok

it "each shared lock is resumed with a token of its own, and can become exclusive"
says A 'f = op("share", "RDWR|CREAT"); flock(f, "SH")' ok
token=$(attribute share token)
says B 'b = op("share", "RDWR|CREAT"); flock(b, "SH")' ok
says B 'x = get(b, "token")' ok
restart
says B 'c = op("share", "RDONLY"); put(c, "resume", x)' ok
says A "g = op('share', 'RDONLY'); put(g, 'resume', $token)" ok
says A 'flock(g, "EX|NB")' EAGAIN
tell A 'flock(g, "EX")'
says B 'close(c)' ok
says B 'close(b)' ENOTCONN
expect_is "$(hear A 10)" ok
expect_is "$(attribute share token)" "$token"
says A 'close(g)' ok
says A 'close(f)' ENOTCONN

it "a ticket that held its queue is resumed by its own name"
says A 'os.mkdir(path("line")); t = op("line/job-", "RDWR|CREAT"); flock(t, "EX"); x = get(t, "token")' ok
restart
says A 'u = op("line/job-0000000000", "RDONLY"); put(u, "resume", x)' ok
says A 'close(t)' ENOTCONN
says B 'b = op("line/job-", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
says A 'close(u)' ok
says B 'flock(b, "EX"); close(b); os.rmdir(path("line"))' ok

it "two threads with a descriptor each: one waits for the other's dead descriptor, without EDEADLK"
says A 'f = op("threads", "RDWR|CREAT"); flock(f, "EX")' ok
says A "other = threading.Thread(target=lambda: ([time.sleep(0.05) for _ in iter(lambda: os.path.exists('$TEST_DIR/go'), True)], evaluate('close(f)')))" ok
restart
says A 'other.start(); g = op("threads", "RDWR|CREAT")' ok
tell A 'flock(g, "EX")'
expect_is "$(hear A 3)" TIMEOUT
: >"$TEST_DIR/go"
expect_is "$(hear A 10)" ok
says A 'other.join(); close(g)' ok

it "a descriptor on its way through a socket keeps it until it is received and closed"
says A 'import socket; ends = socket.socketpair(); f = op("sent", "RDWR|CREAT"); flock(f, "EX")' ok
says A 'socket.send_fds(ends[0], [b"x"], [f])' 1
restart
says A 'close(f)' ENOTCONN
says B 'b = op("sent", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
pause 2.5
says B 'flock(b, "EX|NB")' EAGAIN
says A 'f = socket.recv_fds(ends[1], 1, 1)[1][0]' ok
says B 'flock(b, "EX|NB")' EAGAIN
says A 'close(f)' ENOTCONN
says B 'flock(b, "EX|NB"); close(b)' ok

it "another file's descriptor in a socket keeps it only as long as a file of the dead mount is open"
says A 'f = op("ended", "RDWR|CREAT"); flock(f, "EX")' ok
says B 'b = op("looked", "RDONLY|CREAT")' ok
says A 'null = os.open("/dev/null", os.O_RDONLY); socket.send_fds(ends[0], [b"x"], [null])' ok
restart
says A 'close(f); os.close(null)' ENOTCONN
actor D
says D 'd = op("ended", "RDWR|CREAT"); flock(d, "EX|NB")' EAGAIN
pause 2.5
says D 'flock(d, "EX|NB")' EAGAIN
says B 'close(b)' ENOTCONN
expect eventually 5 answers D 'flock(d, "EX|NB")' ok
says D 'close(d)' ok
says A 'ends[0].close(); ends[1].close()' ok
end_actor D

it "a shared lock keeps out whom it excludes"
says A 'f = op("shared", "RDWR|CREAT"); flock(f, "SH")' ok
restart
says B 'b = op("shared", "RDWR|CREAT"); flock(b, "SH|NB")' ok
says B 'flock(b, "EX|NB")' EAGAIN
says A 'close(f)' ENOTCONN
says B 'flock(b, "EX|NB"); close(b)' ok

it "a ticket that held its queue goes on holding it"
says A 'os.mkdir(path("queue")); t = op("queue/job-", "RDWR|CREAT"); flock(t, "EX")' ok
restart
expect_is "$(ls "$MNT/queue")" job-0000000000
says B 'b = op("queue/job-", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
tell B 'flock(b, "EX")'
says A 'close(t)' ENOTCONN
expect_is "$(hear B 10)" ok
says B 'close(b)' ok

if [ -x "$(dirname "$LEASEFS")/leaserun" ]; then
    it "a ticket of several processes is one line of its queue, and leaserun --status of the queue ends"
    mkdir "$MNT/several"
    start bash -c 'exec 9<>"$1/zz-"; flock 9; sleep 60 & echo $! >"$2"; wait' bash "$MNT/several" "$TEST_DIR/child"
    holder=$STARTED
    ticket_state() { [ "$(attribute several/zz-0000000000 state)" = held ] && [ -s "$TEST_DIR/child" ]; }
    expect eventually 5 ticket_state
    restart
    has_two() { [ "$(owners several/zz-0000000000 | wc -w)" = 2 ]; }
    expect eventually 5 has_two
    expect_is "$(attribute several tickets | wc -l)" 1
    expect timeout 10 "$(dirname "$LEASEFS")/leaserun" --status "$MNT/several"
    end_process "$holder"
    kill "$(cat "$TEST_DIR/child")"
    expect eventually 10 rmdir "$MNT/several"
fi

it "user.lease.break ends it at once"
says A 'f = op("broken", "RDWR|CREAT"); flock(f, "EX")' ok
restart
says B 'put("broken", "break", 1); b = op("broken", "RDWR|CREAT"); flock(b, "EX|NB")' ok
says B 'close(b)' ok
says A 'close(f)' ENOTCONN

it "a waiter's wait ends with the daemon, and its open file counts as long as it has it"
says A 'f = op("waited", "RDWR|CREAT"); flock(f, "EX")' ok
says B 'b = op("waited", "RDWR|CREAT")' ok
tell B 'flock(b, "EX")'
pause 0.3
restart
expect_re "$(hear B 10)" 'ENOTCONN|ECONNABORTED'
says A 'close(f)' ENOTCONN
actor D
says D 'd = op("waited", "RDWR|CREAT"); flock(d, "EX|NB")' EAGAIN
says B 'close(b)' ENOTCONN
says D 'flock(d, "EX|NB"); close(d)' ok

it "a clean end keeps it as well, from a restart on"
says A 'f = op("clean", "RDWR|CREAT"); flock(f, "EX")' ok
kill -TERM "$DAEMON"
expect eventually 10 gone "$DAEMON"
mount_index "$point"
mount_daemons[INDEX]=
mount_at "$point" "$STORE" "$OPTIONS"
says B 'b = op("clean", "RDWR|CREAT"); flock(b, "EX|NB")' EAGAIN
says A 'close(f)' ENOTCONN
says B 'flock(b, "EX|NB"); close(b)' ok

names() { grep -q "process ${actor_pid[$1]} (.*), uid .*, has a file open from the daemon before" "$LOG"; }

it "the log names the processes with a file open on which no lock was found"
says A 'a = op("idle", "RDONLY|CREAT")' ok
says B 'b = op("mine", "RDWR|CREAT"); flock(b, "EX")' ok
restart
expect eventually 5 names A
expect_not names B
says A 'close(a)' ENOTCONN
says B 'close(b)' ENOTCONN

if [ "${E2E_STORE:-local}" != local ]; then
    it "a lock that has run out in the store before the next daemon came is lost, and the log names its process"
    says A 'f = op("late", "RDWR|CREAT"); flock(f, "EX")' ok
    mount_index "$point"
    end_process "$DAEMON"
    mount_daemons[INDEX]=
    if [ "$E2E_STORE" = zookeeper ]; then pause 16; else pause 6; fi # the session of a ZooKeeper mount is longer than a term
    mount_at "$point" "$STORE" "$OPTIONS"
    expect eventually 5 names A
    says B 'b = op("late", "RDWR|CREAT"); flock(b, "EX|NB"); close(b)' ok
    says A 'close(f)' ENOTCONN
fi

it "nothing is left of any when nobody has a file open"
for name in A B D; do end_actor "$name"; done
empty() { [ "$(ls "$MNT" | grep -v '^queue$')" = "" ] && seen; }
expect eventually 10 empty
finish
