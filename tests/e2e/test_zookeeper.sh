#!/bin/bash
# A ZooKeeper server as the store: two mounts, and kazoo beside them; what ends with a session, and what belief does
# before the servers give it up.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=zookeeper.sh
. "$(dirname "$0")/zookeeper.sh"
# shellcheck source=two_mounts.sh
. "$(dirname "$0")/two_mounts.sh"

attribute_is() { [ "$(attribute "$1" "$2")" = "$3" ]; } # NAME ATTRIBUTE VALUE

zookeeper_start
zookeeper_root locks
mount_two ttl=10
on "$MOUNT_B" actor B
actor A

two_mounts quorum

it "a range of bytes covers the whole lock, and the log says so"
says A 'record(f, "SETLK", "WRLCK", 0, 10)' ok
says B 'record(f, "SETLK", "WRLCK", 20, 10)' '@(EAGAIN|EACCES)'
expect logged "$LOG_A" "a range of bytes covers the whole lock"
says A 'record(f, "SETLK", "UNLCK", 0, 10)' ok
says B 'record(f, "SETLK", "WRLCK", 20, 10)' ok
says B 'record(f, "SETLK", "UNLCK", 20, 10)' ok

it "sequence files are ZooKeeper's, over both mounts, as many holding as the directory is wide"
expect mkdir "$MOUNT_A/queue"
expect setfattr -n user.lease.width -v 2 "$MOUNT_B/queue"
says A 't = op("queue/job-", "RDWR|CREAT"); flock(t, "EX")' ok
says A 'u = op("queue/job-", "RDWR|CREAT"); flock(u, "EX")' ok
says B 't = op("queue/job-", "RDWR|CREAT"); flock(t, "EX|NB")' EAGAIN
expect_is "$(ls "$MOUNT_B/queue" | tr '\n' ' ')" 'job-0000000000 job-0000000001 job-0000000002 '
tell B 'flock(t, "EX")'
says A 'close(t)' ok
expect_is "$(hear B)" ok
says A 'close(u)' ok
says B 'close(t)' ok
expect_not rmdir "$MOUNT_A/queue/"none
expect eventually 10 rmdir "$MOUNT_A/queue"

it "a lease moves to a name that is free, with its content and a greater token"
says A 'acquire("named", "text")' ok
token=$(attribute named token)
says B 'acquire("taken")' ok
says A 'os.rename(path("named"), path("taken"))' EBUSY
says A 'os.rename(path("named"), path("nowhere/x"))' ENOENT
says B 'w = op("named", "RDONLY"); flock(w, "EX|NB")' EAGAIN
tell B 'flock(w, "EX")'
expect eventually 10 waiters named 1
says A 'os.rename(path("named"), path("other"))' '@(None|ok)'
expect_is "$(hear B)" ok
expect_is "$(cat "$MOUNT_B/other")" text
expect_not touch "$MOUNT_B/other"
expect test "$(attribute other token)" -gt "$token"
says B 'flock(w, "UN")' ok
says A 'acquire("second")' ok
says A 'os.rename(path("other"), path("second"))' EOPNOTSUPP
expect logged "$LOG_A" "renamed to a name that is free, not over another lock"
expect_is "$(on "$MOUNT_B" attribute other kind)" lease
says A 'rm("second")' ok
says A 'rm("other")' ok
expect_not test -e "$MOUNT_B/other"
says B 'rm("taken")' ok

it "a name that would be a ticket is refused"
says A 'acquire("x-1234567890")' EINVAL

it "inotify tells of the release, the break and the end of what another mount or kazoo held, not of another waiter"
kazoo_start K
watch() { # NAME: on A
    : >"$TEST_DIR/watch.err"
    inotifywait -e delete_self -t 30 "$MOUNT_A/$1" >"$TEST_DIR/watch.out" 2>"$TEST_DIR/watch.err" &
    watcher=$!
    started+=("$watcher")
    expect eventually 10 logged "$TEST_DIR/watch.err" established
}
heard() { # NAME
    wait "$watcher" || fail "inotifywait $1: status $?"
    expect logged "$TEST_DIR/watch.out" DELETE_SELF
    expect_not [ -e "$MOUNT_A/$1" ]
}
silent() { ! logged "$TEST_DIR/watch.out" DELETE_SELF; }
says B 'acquire("seen")' ok
watch seen
says K "try seen -lock-" refused
expect constantly 300 silent
says B 'rm("seen")' ok
heard seen
says B 'acquire("seen")' ok
watch seen
says B 'put("seen", "break", "1")' ok
heard seen
expect mkdir "$MOUNT_B/seen-queue"
says B 'p = op("seen-queue/job-"); q = op("seen-queue/job-")' ok
watch seen-queue/job-0000000000
says B 'close(q)' ok
expect constantly 300 silent
says B 'rm("seen-queue/job-0000000000")' ok
heard seen-queue/job-0000000000
says K "lock seen -lock-" held
watch seen
end_actor K
heard seen

it "kazoo's Lock and a mount exclude each other and wait for each other"
kazoo_start K
says K "lock both -lock-" held
expect_is "$(cat "$MOUNT_A/both")" ""
expect_not touch "$MOUNT_A/both"
says A 'g = op("both", "RDONLY"); flock(g, "EX|NB")' EAGAIN
tell A 'flock(g, "EX")'
expect eventually 10 waiters both 1
says K release ok
expect_is "$(hear A)" ok
says K "try both -lock-" refused
tell K "lock both -lock-"
expect constantly 150 quiet K
says A 'flock(g, "UN")' ok
expect_is "$(hear K)" held
expect exists both

it "the lock of a client that was killed is free after its session"
tell A 'flock(g, "EX")'
expect eventually 10 waiters both 1
end_actor K
expect_is "$(hear A)" ok
says A 'flock(g, "UN")' ok

it "with layout=kazoo its default Lock obeys, too"
mount_backend "$ZOOKEEPER_URI" ttl=10,layout=kazoo
kazoo_start K
expect touch "$MNT/plain"
says K "try plain" refused
expect rm "$MNT/plain"
says K "try plain" held
expect_not touch "$MNT/plain"
says K release ok

it "nodes of other clients are not shown unless tickets stand in them, and cannot be taken or removed as directories"
zookeeper_does 'c.create("/app/config/deep", b"x", makepath=True); c.create("/app2", b"leasefs1 directory nonsense")'
zookeeper_does 'c.create("/" + "n" * 300 + "/x-0000000000", makepath=True)'
expect_not test -e "$MOUNT_A/app"
expect_re " $(ls "$MOUNT_A" | tr '\n' ' ')" '^[^/]* $'
expect_not grep -qx 'app\|app2\|nn*' <<<"$(ls "$MOUNT_A" | sed 's/^nn*$/n/')"
expect_not rmdir "$MOUNT_A/app"
says A 'acquire("app/config/deep/x")' '@(ENOENT|ENOTDIR)'
says A 'acquire("app")' ok
expect_is "$(ls "$MOUNT_B" | grep -x app)" app
says A 'rm("app")' ok
expect_is "$(zookeeper_does 'print(c.get("/app/config/deep")[0])')" "b'x'"

it "what others write into nodes is not believed: not whose they are, nor that they are larger than may be"
says A 'acquire("mine")' ok
zookeeper_does '
ours = c.get("/mine/" + c.get_children("/mine")[0])[0]
c.create("/forged")
c.create("/forged/x-lock-", ours, sequence=True)
c.create("/huge/x-lock-", b"leasefs1 1 0 30000 " + b"0" * 32 + b" 4096\n" + b"y" * 900000, sequence=True, makepath=True)
c.create("/cut/x-lock-", b"leasefs1 1 0 -9223372036854775808 " + b"a" * 32 + b" 4294967295\n", sequence=True, makepath=True)
for i in range(200): c.create("/many/x-lock-", b"z" * 5000, sequence=True, makepath=True)'
says A 'rm("forged")' EPERM
says A 'get("forged", "state")' held
says B 'acquire("forged")' EEXIST
expect test "$(stat -c %s "$MOUNT_A/huge")" -le 65536
expect test -e "$MOUNT_A/cut"
expect_is "$(attribute many waiters)" 199
says A 'put("forged", "break", "1")' ok
says A 'get("mine", "state")' held
says A 'rm("mine")' ok
expect_not test -e "$MOUNT_A/forged"

if [ -z "${LEASEFS_OTHER:-}" ]; then # another version may not keep the fields
    it "fields that a newer leasefs has added to a directory are kept when its attributes are set"
    expect mkdir "$MOUNT_A/newer"
    zookeeper_does '
head, meta = c.get("/newer")[0].split(b"\n", 1)
c.set("/newer", head + b" more 7\n" + meta)'
    expect setfattr -n user.lease.width -v 2 "$MOUNT_B/newer"
    expect_re "$(zookeeper_does 'print(c.get("/newer")[0].split(b"\n")[0].decode())')" '^leasefs1 directory 0 2 .* more 7$'
    expect_is "$(attribute newer width)" 2
    expect rmdir "$MOUNT_A/newer"
fi

it "nodes that it has no rights to give ENOLCK and EIO, are said in the log once a second, and stop nothing else"
zookeeper_does '
closed = [make_acl("digest", "someone:x", all=True)]
c.create("/barred", acl=closed)
c.create("/shut", b"", acl=[make_acl("world", "anyone", read=True)])'
says A 'acquire("barred")' '@(EIO|ENOLCK)'
says A 'acquire("shut")' ENOLCK
for i in {1..30}; do says A 'os.stat(path("barred"))' EIO; done
expect_is "$(grep -c 'refuses a request' "$LOG_A")" '[1-9]'
says A 'ls()' '*cut*'
says A 'acquire("open")' ok
says A 'rm("open")' ok

it "who waits for a lock of another client that lets nobody read its node is told of its end"
zookeeper_does '
c.create("/secret")
c.create("/secret/x-lock-", acl=[make_acl("digest", "someone:x", all=True)], sequence=True)'
tell A 'f = op("secret", "RDONLY|CREAT"); flock(f, "EX")'
expect constantly 150 quiet A
zookeeper_does 'c.delete("/secret/x-lock-0000000000")'
expect_is "$(hear A 5)" ok
says A 'close(f)' ok

it "a quota of the servers is told as ENOSPC, what is there can be given back, and then it goes on"
zookeeper_does 'c.create("/limited", b"leasefs1 directory 0 1 0 1\n")'
"$PYTHON" - "127.0.0.1:$ZOOKEEPER_PORT" "$ZOOKEEPER_ROOT" <<'END'
import sys
from kazoo.client import KazooClient
c = KazooClient(hosts=sys.argv[1]); c.start()
at = "/zookeeper/quota" + sys.argv[2] + "/limited"
c.create(at + "/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5", makepath=True)
c.create(at + "/zookeeper_stats", b"count=1,bytes=26")
c.stop()
END
says A 'acquire("limited/1")' ok
says A 'acquire("limited/2")' ok
says A 'acquire("limited/3")' ENOSPC
says A 'rm("limited/1")' ok
says A 'acquire("limited/1")' ok
says A 'rm("limited/1")' ok
says A 'rm("limited/2")' ok

it "a lock that is lost stays refused for the lock-delay of its directory, one that is given back does not"
expect mkdir "$MOUNT_A/slow"
expect setfattr -n user.lease.delay -v 3s "$MOUNT_A/slow"
says A 'acquire("slow/lock")' ok
says A 'rm("slow/lock")' ok
says B 'acquire("slow/lock")' ok
says A 'put("slow/lock", "break", "1")' ok
now
T=$NOW
expect_not test -e "$MOUNT_A/slow/lock"
says A 'acquire("slow/lock")' EEXIST
pause 1.1 # a refusal in the first second is for who raced for it
says A 'y = op("slow/lock", "RDWR|CREAT"); flock(y, "EX|NB")' EAGAIN
says A 'flock(y, "EX")' ok
now
expect_between 2900 $((NOW - T)) $((6000 + SLACK)) "milliseconds until the lock-delay was over"
says A 'flock(y, "UN"); close(y)' ok
says B 'acquire("slow/lock"); put("slow/lock", "ttl", "1")' ok
expect eventually 10 gone_from "$MOUNT_A" slow/lock
now
T=$NOW
says A 'acquire("slow/lock")' EEXIST
expect eventually 10 answers A 'acquire("slow/lock")' ok
now
expect_between 2500 $((NOW - T)) $((6000 + SLACK)) "milliseconds until the lock-delay was over"
says A 'os.rename(path("slow/lock"), path("slow/other"))' '@(None|ok)'
says B 'acquire("slow/lock")' ok
says B 'rm("slow/lock")' ok
mount_backend "$ZOOKEEPER_URI" ttl=1
dead=$MNT
actor E
says E 'acquire("slow/dead")' ok
pause 1.2
crash "$MNT"
expect eventually 20 gone_from "$MOUNT_A" slow/dead
says A 'acquire("slow/dead")' EEXIST
expect eventually 20 answers A 'acquire("slow/dead")' ok
end_actor E
says A 'rm("slow/dead")' ok
says A 'rm("slow/other")' ok
expect rmdir "$MOUNT_B/slow"

it "TLS, which the library does not have, is refused with that reason"
for scheme in zookeepers zookeeper+tls; do
    expect_re "$("$LEASEFS" -f "$scheme://127.0.0.1:$ZOOKEEPER_PORT/locks" "$TEST_DIR" 2>&1)" 'library .* has no TLS'
done

it "nodes of a mount with credentials are closed to others"
(umask 077 && echo user:secret >"$TEST_DIR/credentials")
mount_backend "$ZOOKEEPER_URI" "ttl=10,credentials=$TEST_DIR/credentials"
expect touch "$MNT/closed"
says K "nodes closed" refused
says K "auth user:secret" ok
node=$(ask K "nodes closed")
says K "data closed/$node" 'leasefs1 *'
end_actor K

it "a daemon that is killed and starts again has its leases, places and handle locks"
mount_backend "$ZOOKEEPER_URI" ttl=10
again=$MNT
expect mkdir "$MNT/places"
actor D
says D 'acquire("places/lease", "text")' ok
says D 'h = op("handle", "RDWR|CREAT"); flock(h, "EX")' ok
says D 'close(op("places/job-"))' ok
says D 'close(op("places/job-"))' ok
pause 1.2 # who owns them is settled, and that is written
says D 'acquire("young")' ok
token=$(attribute places/lease token)
session=$(sed -n 's/^session: //p' "$MNT/.leasefs/status")
expect_not touch "$MOUNT_A/places/lease"
expect_not touch "$MOUNT_A/handle"
crash "$MNT"
expect_not touch "$MOUNT_A/places/lease"
mount_at "$again" "$ZOOKEEPER_URI" ttl=10
expect logged "$LOG" "goes on with its session, and with 5 locks in it"
expect_is "$(sed -n 's/^session: //p' "$MNT/.leasefs/status")" "$session"
expect_not touch "$MOUNT_A/handle"
expect_not touch "$MNT/handle"
expect_is "$(attribute handle kind)" flock
expect_not touch "$MOUNT_A/places/lease"
expect_not touch "$MOUNT_A/young"
expect_is "$(attribute places/lease token)" "$token"
expect_is "$(cat "$MNT/places/lease")" text
places=("$MNT"/places/job-*)
expect_is "${#places[@]}" 2
first=places/${places[0]##*/} second=places/${places[1]##*/}
expect_is "$(attribute "$first" position) $(attribute "$second" position)" "0 1"
expect_is "$(attribute "$first" owner)" "$(attribute places/lease owner)"
expect_not rm "$MOUNT_A/places/lease"
says D "rm('$first')" ok
expect eventually 10 attribute_is "$second" position 0
says D 'rm("places/lease")' ok
expect touch "$MOUNT_A/places/lease"
expect rm "$MOUNT_A/places/lease"
says A 'acquire("handle")' EEXIST
says D 'close(h)' ENOTCONN
expect eventually 12 answers A 'acquire("handle")' ok
says A 'rm("handle")' ok

it "its leases are renewed on, one whose owner has ended runs out, and one of a fixed term ends with that"
says D 'acquire("long")' ok
says D 'acquire("fixed"); os.setxattr(path("fixed"), "user.lease.ttl", b"9")' ok
pause 1.2
crash "$MNT"
mount_at "$again" "$ZOOKEEPER_URI" ttl=10
left=$(attribute fixed remaining)
expect_re "$left" '^[0-8]\.'
expect eventually 15 gone_from "$MOUNT_A" fixed
pause 3 # more than the term of the other since it was taken
expect_not touch "$MOUNT_A/long"
end_actor D
expect eventually 20 gone_from "$MOUNT_A" long

it "so has one that was unmounted, and one that starts while the server is away does not wait for its session for long"
expect touch "$MNT/unmounted"
expect unmount "$MNT"
expect_not touch "$MOUNT_A/unmounted"
mount_at "$again" "$ZOOKEEPER_URI" ttl=10
expect logged "$LOG" "goes on with its session"
crash "$MNT"
kill -STOP "$ZOOKEEPER_PID"
mount_at "$again" "$ZOOKEEPER_URI" ttl=10,background
expect logged "$LOG" "which locks this mount held before: they will run out"
kill -CONT "$ZOOKEEPER_PID"
expect eventually 20 touch "$MNT/begun"
expect_not touch "$MOUNT_A/unmounted"
expect rm "$MNT/begun"

it "a handle lock that was waited for survives a daemon that is killed right after the grant"
mount_backend "$ZOOKEEPER_URI" ttl=4
again=$MNT
actor W
says A 'v = op("long-awaited", "RDWR|CREAT"); flock(v, "EX")' ok
says W 'v = op("long-awaited", "RDONLY")' ok
tell W 'flock(v, "EX")'
expect eventually 10 on "$MOUNT_A" waiters long-awaited 1
pause 4.5
says A 'flock(v, "UN")' ok
expect_is "$(hear W)" ok
crash "$MNT"
mount_at "$again" "$ZOOKEEPER_URI" ttl=4
says A 'flock(v, "EX|NB")' EAGAIN
tell A 'flock(v, "EX")'
end_actor W
expect_is "$(hear A 10)" ok
says A 'flock(v, "UN"); close(v)' ok

it "a session that expired while no daemon was there is told, and a new one is made"
mount_backend "$ZOOKEEPER_URI" ttl=1
again=$MNT
expect touch "$MNT/expired"
crash "$MNT"
expect flock -w 30 "$MOUNT_A/expired" true
mount_at "$again" "$ZOOKEEPER_URI" ttl=1
expect logged "$LOG" "session of the daemon before has expired"
expect touch "$MNT/expired"
expect rm "$MNT/expired"

it "a state that is torn is mended; one that is damaged, of others or in use is left, and said to be"
state_of() { echo "$TEST_DIR/state/$(systemd-escape --path "$1")/zookeeper"; }
expect touch "$MNT/torn"
crash "$MNT"
printf 'half a rec' >>"$(state_of "$again")/journal"
mount_at "$again" "$ZOOKEEPER_URI" ttl=1
expect logged "$LOG" "torn end of 10 bytes was cut off"
expect logged "$LOG" "goes on with its session, and with 1 locks in it"
expect_is "$(stat -c %a "$(state_of "$again")" "$(state_of "$again")/journal" | xargs)" "700 600"
crash "$MNT"
chmod 777 "$(state_of "$again")"
mount_at "$again" "$ZOOKEEPER_URI" ttl=1
expect logged "$LOG" "the next one will not find its leases: .* can be written by other users"
expect touch "$MNT/works"
crash "$MNT"
chmod 700 "$(state_of "$again")"
printf 'not a journal at all, and long enough to be one' >"$(state_of "$again")/journal"
mount_at "$again" "$ZOOKEEPER_URI" ttl=1
expect logged "$LOG" "the next one will not find its leases: "
expect touch "$MNT/works-on"
expect unmount "$MNT"
rm "$(state_of "$again")/journal"
flock "$(state_of "$again")/lock" sleep 60 &
started+=("$!")
held_by_flock() { ! flock -n "$(state_of "$again")/lock" true; }
expect eventually 5 held_by_flock
mount_at "$again" "$ZOOKEEPER_URI" ttl=1
expect logged "$LOG" "the next one will not find its leases: .* is in use by another leasefs"
expect touch "$MNT/works-still"
expect rm "$MNT/works-still"

it "what a mount held is free when its daemon was killed, after its session and not before"
mount_backend "$ZOOKEEPER_URI" ttl=2
cut=$MNT cut_daemon=$DAEMON
expect touch "$MNT/killed"
kill -9 "$DAEMON"
expect_not touch "$MOUNT_A/killed"
expect flock -w 30 "$MOUNT_A/killed" true
umount -l "$cut"

it "a mount that is stopped for longer than its session has lost what it held when it goes on"
mount_backend "$ZOOKEEPER_URI" ttl=2
actor C
says C 's = op("stopped", "RDWR|CREAT"); flock(s, "EX")' ok
kill -STOP "$DAEMON"
expect flock -w 30 "$MOUNT_A/stopped" true
kill -CONT "$DAEMON"
says C 'read(s, 1)' ESTALE
says C 'flock(s, "UN")' ok
says C 'flock(s, "EX")' ok

it "who waits when the session expires queues anew, and is granted when the holder lets go, not before"
says A 'w = op("awaited", "RDWR|CREAT"); flock(w, "EX")' ok
says C 'w = op("awaited", "RDONLY")' ok
tell C 'flock(w, "EX")'
expect eventually 10 on "$MOUNT_A" waiters awaited 1
kill -STOP "$DAEMON"
expect eventually 30 on "$MOUNT_A" waiters awaited 0
kill -CONT "$DAEMON"
expect eventually 10 on "$MOUNT_A" waiters awaited 1
expect constantly 300 quiet C
says B 'w = op("awaited", "RDONLY"); flock(w, "EX|NB")' EAGAIN
says A 'flock(w, "UN")' ok
expect_is "$(hear C)" ok
says B 'flock(w, "EX|NB")' EAGAIN
says C 'flock(w, "UN")' ok
says B 'flock(w, "EX|NB"); flock(w, "UN")' ok
expect_not logged "$LOG" "cannot be noted" # the new session, from within the sandbox

it "while the server does not answer, each call ends in its errno, and what was unknown is not held afterwards"
says A 'acquire("rest")' ok
says B 'x = op("away", "RDWR|CREAT"); flock(x, "EX")' ok
says A 'x = op("away", "RDONLY")' ok
says C 'x = op("away", "RDONLY")' ok
kill -STOP "$ZOOKEEPER_PID"
says A 'acquire("unknown")' '@(EIO|ENOLCK)'
says A 'os.stat(path("never"))' EIO
says A 'ls()' EIO
says A 'os.mkdir(path("made"))' '@(EIO|ENOLCK)'
says A 'flock(x, "EX|NB")' ENOLCK
says A 'rm("rest")' '@(EIO|ENOLCK)'
tell C 'flock(x, "EX")'
pause 1
kill -USR1 "${actor_pid[C]}"
expect_is "$(hear C)" '@(EINTR|ENOLCK)'
kill -CONT "$ZOOKEEPER_PID"
expect eventually 20 gone_from "$MOUNT_B" unknown
expect eventually 20 gone_from "$MOUNT_B" rest
expect eventually 10 touch "$MOUNT_B/unknown"
says C 'flock(x, "EX|NB"); flock(x, "UN")' '@(ok|EAGAIN)'
expect rm "$MOUNT_B/unknown"

it "belief ends when no write is acknowledged, before a server could give the session up"
kill -STOP "$ZOOKEEPER_PID"
expect eventually 20 logged "$LOG" "no write was acknowledged"
says C 'read(s, 1)' ESTALE
kill -CONT "$ZOOKEEPER_PID"
says C 'flock(s, "UN")' ok
says C 'flock(s, "EX")' ok
end_actor C

it "a server that is killed and comes again has the session and its locks"
expect eventually 10 touch "$MOUNT_A/kept"
token=$(attribute kept token)
end_process "$ZOOKEEPER_PID"
expect zookeeper_launch
expect eventually 10 logged "$LOG_A" "is there again"
expect_is "$(on "$MOUNT_A" attribute kept token)" "$token"
expect_not touch "$MOUNT_B/kept"
finish
