#!/bin/bash
# A guarded lock: broken, or released by its token, it is lost at once, and nobody else gets it before its holder has
# closed the file or the guard's time is over.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory allow_other
actor A
actor B
actor U setpriv --reuid=65534 --regid=65534 --clear-groups

lost() { # the handle f of A has lost its lock
    says A 'read(f)' ESTALE
    says A 'os.fsync(f)' ESTALE
    says A 'get(f, "state")' lost
    says A 'poll(f)' '*ERR|HUP'
}
kept() { # NAME: it is shown as broken, and A as its holder
    expect exists "$1"
    expect_is "$(attribute "$1" state)" broken
    expect_is "$(attribute "$1" owner)" "* ${actor_pid[A]} 0 *"
    expect_is "$(attribute "$1" token)" "$token"
    expect grep -q "^$1	.*	${actor_pid[A]}	0	" "$MNT/.leasefs/locks"
    says B "g = op('$1', 'RDONLY|CREAT'); flock(g, 'EX|NB')" EAGAIN
    says B 'close(g)' ok
    says B "acquire('$1')" EEXIST
}
guarded() { grep -q "^leasefs_guarded $1\$" "$MNT/.leasefs/metrics"; }

it "the holder sets a guard of at most a minute, reads it, and takes it back"
says A 'f = op("set", "RDONLY|CREAT"); flock(f, "EX")' ok
says A 'get(f, "guard")' ENODATA
says A 'put(f, "guard", "1500ms")' ok
says A 'get(f, "guard")' 1.500
says A 'put(f, "guard", "1m")' ok
says A 'get(f, "guard")' 60
expect_is "$(attribute set guard)" 60
for value in 61s 1h soon '' -1 1ms; do
    says A "put(f, 'guard', '$value')" EINVAL
done
says A 'get(f, "guard")' 60
says A 'put(f, "guard", "0")' ok
says A 'get(f, "guard")' ENODATA
says A 'put(f, "guard", "5"); os.removexattr(f, "user.lease.guard")' ok
says A 'get(f, "guard")' ENODATA

it "a guard is set by nobody but the holder"
says B 'put("set", "guard", "5")' EPERM
says U 'put("set", "guard", "5")' 'E@(PERM|ACCES)'
says A 'flock(f, "UN"); close(f)' ok
says A 'f = op("set", "RDONLY")' ENOENT
says A 'f = op("set"); put(f, "guard", "5")' EINVAL # it is not decided that it holds
says A 'close(f); rm("set")' ok

for how in break release; do
    it "a guarded flock that ends by $how is lost at once, and shown as held until its holder has closed the file"
    says A 'f = op("flock", "RDONLY|CREAT"); flock(f, "EX"); put(f, "guard", "1m")' ok
    token=$(attribute flock token)
    expect guarded 0
    [ $how = break ] && value=1 || value=$token
    tell B "h = op('flock', 'RDONLY|CREAT'); flock(h, 'EX')"
    expect eventually 5 waiters flock 1
    actor C
    says C "put('flock', '$how', '$value')" ok
    lost
    end_actor C
    actor C
    says C 'g = op("flock", "RDONLY|CREAT"); flock(g, "EX|NB")' EAGAIN
    expect guarded 1
    expect_is "$(attribute flock owner)" "* ${actor_pid[A]} 0 *"
    expect_is "$(attribute flock token)" "$token"
    expect_is "$(stat -c %u "$MNT/flock")" 0
    expect_is "$(ls "$MNT")" flock
    now; began=$NOW
    says A 'close(f)' ok
    expect_is "$(hear B)" ok
    now
    expect_between 0 $((NOW - began)) $((500 + SLACK)) "ms until the waiter had it"
    expect guarded 0
    expect_is "$(attribute flock owner)" "* ${actor_pid[B]} 0 *"
    says B 'close(h)' ok
    end_actor C
done

it "a guarded lease is kept, content and mode included, for who has broken it as for others"
says A 'f = op("lease", "RDWR|CREAT|EXCL", 0o640); write(f, "text"); put(f, "guard", "1m")' ok
token=$(attribute lease token)
says B 'put("lease", "break", 1)' ok
lost
kept lease
expect_is "$(cat "$MNT/lease")" text
expect_is "$(stat -c %a "$MNT/lease")" 640
says A 'write(f, "late")' ESTALE
says A 'rm("lease")' EPERM
says B 'rm("lease")' EPERM
says B 'mv("lease", "other")' 'E@(PERM|STALE)'
says A 'close(f)' ok
expect eventually 5 absent lease
says B 'acquire("lease"); rm("lease")' ok

it "a guard ends with its time"
says A 'f = op("time", "RDONLY|CREAT"); flock(f, "EX"); put(f, "guard", "1500ms")' ok
now; began=$NOW
says B 'put("time", "break", 1)' ok
says B 'h = op("time", "RDONLY|CREAT"); flock(h, "EX")' ok
now
expect_between 1490 $((NOW - began)) $((1600 + SLACK)) "ms"
says B 'close(h)' ok
says A 'close(f)' ok

it "the guard of a lease that has no open file, and that nobody waits for, ends with its time, and inotify(7) tells so"
says A 'acquire("watched"); put("watched", "guard", "1")' ok
inotifywait -qq -e delete_self "$MNT/watched" &
watcher=$!
pause 0.3
says B 'put("watched", "break", 1)' ok
expect exists watched
expect eventually 5 gone "$watcher" # a look-up in between makes the kernel forget it without an event
expect eventually 5 absent watched

it "a second break ends the guard with the value 2 only, and by root only"
says U 'f = op("second", "RDONLY|CREAT"); flock(f, "EX"); put(f, "guard", "1m")' ok
actor V setpriv --reuid=65534 --regid=65534 --clear-groups
token=$(attribute second token)
says V 'put("second", "break", 1)' ok
expect_is "$(attribute second state)" broken
says V 'put("second", "break", 1)' EBUSY
says V 'put("second", "break", 2)' EPERM
says B 'put("second", "break", 1)' EBUSY
says V "put('second', 'release', '$token')" EPERM
expect exists second
says B 'acquire("second")' EEXIST
says B 'put("second", "break", 2)' ok
expect absent second
says B 'acquire("second"); rm("second")' ok
says U 'close(f)' ok

it "the last of the files that were open by it ends the guard, also by the death of its process"
says A 'f = op("dup", "RDONLY|CREAT"); flock(f, "EX"); put(f, "guard", "1m"); p = fork("None")' ok
says B 'put("dup", "break", 1)' ok
says A 'close(f)' ok
expect constantly 500 exists dup
says A 'kill(p); reap(p)' ok
expect eventually 5 absent dup

it "a guarded byte range is kept, and only that"
says A 'f = op("range", "RDWR|CREAT"); record(f, "SETLK", "WRLCK", 0, 10, ofd=True); put(f, "guard", "1m")' ok
says B 'h = op("range", "RDWR|CREAT"); record(h, "SETLK", "WRLCK", 20, 10, ofd=True)' ok
token=$(ask A 'get(f, "token")')
actor C
says C "put('range', 'release', '$token')" ok
lost
says B 'record(h, "SETLK", "WRLCK", 0, 10, ofd=True)' EAGAIN
says B 'record(h, "SETLK", "WRLCK", 10, 10, ofd=True)' ok
says A 'close(f)' ok
expect eventually 5 answers B 'record(h, "SETLK", "WRLCK", 0, 10, ofd=True)' ok
says B 'close(h)' ok
end_actor C

it "a guarded ticket keeps its place in the queue"
mkdir "$MNT/queue"
says A 'f = op("queue/job-", "RDWR|CREAT"); flock(f, "EX"); put(f, "guard", "1m"); me = get(f, "name")' ok
says B 'h = op("queue/job-", "RDWR|CREAT"); flock(h, "EX|NB")' EAGAIN
name=$(ask A me)
says B "put('queue/$name', 'break', 1)" ok
lost
expect exists "queue/$name"
says B 'flock(h, "EX|NB")' EAGAIN
says A 'close(f)' ok
expect eventually 5 answers B 'flock(h, "EX|NB")' ok
says B 'close(h)' ok

if [ -z "${E2E_STORE:-}" ]; then
    it "on a local store a guard outlives the daemon, before and after the break"
    store=$TEST_DIR/store
    mkdir -p "$store"
    mount_local "$store"
    actor D
    actor F
    says D 'f = op("later", "RDWR|CREAT|EXCL"); put(f, "guard", "1m")' ok
    says D 'g = op("now", "RDWR|CREAT|EXCL"); put(g, "guard", "1m")' ok
    says F 'put("now", "break", 1)' ok
    crash "$MNT"
    mount_local "$store"
    actor G
    says G 'acquire("now")' EEXIST
    expect_is "$(attribute now owner)" "* ${actor_pid[D]} 0 *"
    says G 'put("later", "break", 1)' ok
    says G 'acquire("later")' EEXIST
    expect_is "$(attribute later guard)" 60
    says G 'put("later", "break", 2)' ok
    says G 'put("now", "break", 2)' ok
    expect absent later
    expect absent now
fi

finish
