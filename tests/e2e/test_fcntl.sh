#!/bin/bash
# Record locks by fcntl(2): byte ranges, owners, F_GETLK, OFD locks, deadlocks.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B
actor C

opened() { # NAME: a, b and c are handles on it
    says A "a = op('$1', 'RDWR|CREAT')" ok
    says A "record(a, 'SETLK', 'WRLCK', 1000000, 1)" ok # no longer provisional, out of the way
    says B "b = op('$1', 'RDWR|CREAT')" ok
    says C "c = op('$1', 'RDWR|CREAT')" ok
}
closed() {
    says A 'os.close(a)' ok
    says B 'os.close(b)' '@(ok|EBUSY)'
    says C 'os.close(c)' '@(ok|EBUSY)'
}

it "F_SETLK of a free name acquires a handle lock: a held file of kind fcntl"
says A 'a = op("l", "RDWR|CREAT")' ok
says A 'record(a, "SETLK", "WRLCK")' ok
expect exists l
expect_is "$(attribute l kind)" fcntl
expect_is "$(attribute l mode)" exclusive
says B 'b = op("l", "RDWR")' ok
says B 'record(b, "SETLK", "WRLCK")' 'E@(AGAIN|ACCES)'
says B 'record(b, "SETLK", "RDLCK")' 'E@(AGAIN|ACCES)'
says A 'record(a, "SETLK", "UNLCK")' ok
expect absent l
says B 'record(b, "SETLK", "WRLCK")' ok
says B 'os.close(b)' ok
says A 'os.close(a)' ok
expect eventually 2 absent l

it "read locks go together, and exclude a write lock"
opened rd
says A 'record(a, "SETLK", "RDLCK", 0, 10)' ok
says B 'record(b, "SETLK", "RDLCK", 0, 10)' ok
says C 'record(c, "SETLK", "WRLCK", 5, 1)' 'E@(AGAIN|ACCES)'
says C 'record(c, "SETLK", "WRLCK", 10, 1)' ok
closed

it "byte ranges: those that do not overlap do not exclude each other"
opened range
says A 'record(a, "SETLK", "WRLCK", 0, 100)' ok
says B 'record(b, "SETLK", "WRLCK", 100, 100)' ok
says B 'record(b, "SETLK", "WRLCK", 99, 1)' 'E@(AGAIN|ACCES)'
says A 'record(a, "SETLK", "WRLCK", 199, 1)' 'E@(AGAIN|ACCES)'
says C 'record(c, "SETLK", "WRLCK", 200, 100)' ok

it "splitting: unlocking the middle leaves both ends"
says A 'record(a, "SETLK", "UNLCK", 40, 20)' ok
says C 'record(c, "SETLK", "WRLCK", 40, 20)' ok
says C 'record(c, "SETLK", "WRLCK", 39, 1)' 'E@(AGAIN|ACCES)'
says C 'record(c, "SETLK", "WRLCK", 60, 1)' 'E@(AGAIN|ACCES)'
says C 'record(c, "GETLK", "WRLCK", 0, 40)' "WRLCK 0 40 ${actor_pid[A]}"
says C 'record(c, "GETLK", "WRLCK", 60, 40)' "WRLCK 60 40 ${actor_pid[A]}"
says C 'record(c, "SETLK", "UNLCK", 40, 20)' ok

it "merging: adjacent locks of one process are one"
says A 'record(a, "SETLK", "WRLCK", 40, 20)' ok
says C 'record(c, "GETLK", "WRLCK", 0, 100)' "WRLCK 0 100 ${actor_pid[A]}"

it "changing the kind of a part: the rest stays"
says A 'record(a, "SETLK", "RDLCK", 10, 10)' ok
says C 'record(c, "SETLK", "RDLCK", 10, 10)' ok
says C 'record(c, "SETLK", "RDLCK", 9, 1)' 'E@(AGAIN|ACCES)'
says C 'record(c, "GETLK", "WRLCK", 10, 10)' "RDLCK 10 10 ${actor_pid[A]}"
says A 'record(a, "SETLK", "WRLCK", 10, 10)' 'E@(AGAIN|ACCES)'
closed
expect eventually 2 absent range

it "to the end of everything: length 0, and Java's 0…MAX range"
opened max
says A 'record(a, "SETLK", "UNLCK")' ok
says A 'record(a, "SETLK", "WRLCK", 0, 2**63 - 1)' ok
says B 'record(b, "SETLK", "WRLCK", 2**62, 1)' 'E@(AGAIN|ACCES)'
says A 'record(a, "SETLK", "UNLCK", 0, 2**63 - 1)' ok
says B 'record(b, "SETLK", "WRLCK", 50, 0)' ok
says A 'record(a, "SETLK", "WRLCK", 2**63 - 2, 1)' 'E@(AGAIN|ACCES)'
says A 'record(a, "SETLK", "WRLCK", 0, 50)' ok
says C 'record(c, "GETLK", "WRLCK", 60, 0)' "WRLCK 50 0 ${actor_pid[B]}"
closed

it "F_GETLK tells the pid of the holder, and UNLCK when it would be granted"
opened get
says A 'record(a, "SETLK", "RDLCK", 5, 5)' ok
says B 'record(b, "GETLK", "WRLCK", 0, 0)' "@(RDLCK 5 5|WRLCK 1000000 1) ${actor_pid[A]}"
says B 'record(b, "GETLK", "RDLCK", 0, 100)' UNLCK
says A 'record(a, "GETLK", "WRLCK", 0, 0)' UNLCK
closed

it "any close by the process releases its record locks of that file"
opened any
says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
says B 'record(b, "SETLK", "WRLCK", 0, 10)' 'E@(AGAIN|ACCES)'
says A 'd = op("any", "RDONLY"); os.close(d)' ok
says B 'record(b, "SETLK", "WRLCK", 0, 10)' ok
closed

it "two handles of one process do not exclude each other, a child is another process"
opened proc
says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
says A 'child("record(a, \"SETLK\", \"WRLCK\", 0, 10)")' 'E@(AGAIN|ACCES)' # by the very descriptor, too
says A 'd = op("proc", "RDWR"); record(d, "SETLK", "WRLCK", 5, 10)' ok
says A 'child("record(a, \"SETLK\", \"WRLCK\", 0, 10)")' 'E@(AGAIN|ACCES)'
says A 'child("record(a, \"GETLK\", \"WRLCK\", 0, 10)")' "WRLCK * ${actor_pid[A]}"
says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
says A 'os.close(d)' ok
closed

it "record locks by several files of a process go beside a flock by the first of them, and by no other"
opened several
says A 'record(a, "SETLK", "UNLCK")' ok # a new lock begins
says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
says A 'd = op("several", "RDWR"); record(d, "SETLK", "RDLCK", 0, 5)' ok
says A 'e = op("several", "RDWR"); fcntl.flock(e, fcntl.LOCK_EX | fcntl.LOCK_NB)' EAGAIN
says A 'fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)' ok
says A 'fcntl.flock(d, fcntl.LOCK_EX | fcntl.LOCK_NB)' EAGAIN # that of a
says A 'record(d, "GETLK", "WRLCK", 20, 10)' "WRLCK * ${actor_pid[A]}"
says A 'record(d, "SETLK", "WRLCK", 20, 10)' 'E@(AGAIN|ACCES)'
says A 'record(d, "SETLKW", "WRLCK", 20, 10)' EDEADLK
says A 'record(a, "SETLK", "WRLCK", 20, 10)' ok
says A 'child("record(a, \"SETLK\", \"WRLCK\", 20, 10)")' 'E@(AGAIN|ACCES)'
says A 'child("fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)")' ok # the same lock
says A 'fcntl.flock(a, fcntl.LOCK_UN)' ok
says A 'fcntl.flock(d, fcntl.LOCK_EX)' EDEADLK # for its own records: nobody else would end the wait
says A 'os.close(e)' ok # with that go its records
says A 'fcntl.flock(d, fcntl.LOCK_EX)' ok
says B 'record(b, "SETLK", "WRLCK", 0, 10)' 'E@(AGAIN|ACCES)'
says A 'fcntl.flock(d, fcntl.LOCK_UN); os.close(d)' ok
says B 'record(b, "SETLK", "WRLCK", 0, 10)' ok
closed

it "a record lock that waits goes beside nobody who asks by a file of records that are gone"
opened parted
says A 'record(a, "SETLK", "WRLCK", 0, 10); d = op("parted", "RDWR")' ok
says C 'record(c, "SETLK", "WRLCK", 100, 10)' ok
says A 'got = []; threading.Thread(target=lambda: got.append(record(d, "SETLKW", "WRLCK", 100, 10)), daemon=True).start()' ok
says A 'time.sleep(0.3); record(a, "SETLK", "UNLCK")' ok
says A 'ends = os.pipe(); p = os.fork() or (fcntl.flock(a, fcntl.LOCK_EX), os.write(ends[1], b"x"), time.sleep(60))' ok
says A 'time.sleep(0.3)' ok
says C 'record(c, "SETLK", "UNLCK")' ok
says A 'time.sleep(0.3); os.set_blocking(ends[0], False)' ok
says A 'len(got)' 1
says A 'os.read(ends[0], 1)' EAGAIN
says A 'os.kill(p, 9); os.waitpid(p, 0)' ok
says A 'os.close(d)' ok
closed

it "a child that exits does not release its parent's record locks"
opened exit
says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
says A 'child("pid()")' '[0-9]*'
says B 'record(b, "SETLK", "WRLCK", 0, 10)' 'E@(AGAIN|ACCES)'
closed

it "the death of the process releases"
actor D
says D 'd = op("death", "RDWR|CREAT"); record(d, "SETLK", "WRLCK", 0, 10)' ok
expect exists death
end_actor D
expect eventually 2 absent death

it "F_SETLKW waits, and is granted when the range is free"
opened wait
says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
tell B 'record(b, "SETLKW", "WRLCK", 5, 10)'
expect eventually 3 eval '[ "$(attribute wait waiters)" = 1 ]'
says A 'record(a, "SETLK", "UNLCK", 0, 5)' ok
says C 'record(c, "SETLK", "WRLCK", 0, 5)' ok
expect_is "$(attribute wait waiters)" 1
says A 'record(a, "SETLK", "UNLCK", 5, 5)' ok
expect_is "$(hear B)" ok
closed

it "a cycle of waits is EDEADLK"
says A 'x = op("x", "RDWR|CREAT"); record(x, "SETLK", "WRLCK")' ok
says B 'y = op("y", "RDWR|CREAT"); record(y, "SETLK", "WRLCK")' ok
says A 'y = op("y", "RDWR|CREAT")' ok
says B 'x = op("x", "RDWR|CREAT")' ok
tell A 'record(y, "SETLKW", "WRLCK")'
expect eventually 3 eval '[ "$(attribute y waiters)" = 1 ]'
says B 'record(x, "SETLKW", "WRLCK")' EDEADLK
says B 'record(y, "SETLK", "UNLCK")' ok
expect_is "$(hear A)" ok
says A 'os.close(x); os.close(y)' ok
says B 'os.close(x)' '@(ok|EBUSY)'
says B 'os.close(y)' '@(ok|EBUSY)'

it "a cycle of three is EDEADLK, and waits that are no cycle are not"
says A 'z1 = op("z1", "RDWR|CREAT"); record(z1, "SETLK", "WRLCK")' ok
says B 'z2 = op("z2", "RDWR|CREAT"); record(z2, "SETLK", "WRLCK")' ok
says C 'z3 = op("z3", "RDWR|CREAT"); record(z3, "SETLK", "WRLCK")' ok
says A 'z2 = op("z2", "RDWR|CREAT")' ok
says B 'z3 = op("z3", "RDWR|CREAT")' ok
says C 'z1 = op("z1", "RDWR|CREAT")' ok
tell A 'record(z2, "SETLKW", "WRLCK")'
expect eventually 3 eval '[ "$(attribute z2 waiters)" = 1 ]'
tell B 'record(z3, "SETLKW", "WRLCK")'
expect eventually 3 eval '[ "$(attribute z3 waiters)" = 1 ]'
says C 'record(z1, "SETLKW", "WRLCK")' EDEADLK
says C 'record(z3, "SETLK", "UNLCK")' ok
expect_is "$(hear B)" ok
says B 'record(z2, "SETLK", "UNLCK")' ok
expect_is "$(hear A)" ok

it "OFD locks belong to the handle: two handles of one process exclude each other"
says A 'o = op("ofd", "RDWR|CREAT"); record(o, "SETLK", "WRLCK", 0, 10, True)' ok
expect_is "$(attribute ofd kind)" fcntl
says A 'q = op("ofd", "RDWR|CREAT"); record(q, "SETLK", "WRLCK", 0, 10, True)' EAGAIN
says A 'record(q, "SETLK", "WRLCK", 10, 10, True)' ok
says B 'b = op("ofd", "RDWR|CREAT"); record(b, "SETLK", "WRLCK", 0, 10)' 'E@(AGAIN|ACCES)'
says B 'record(b, "GETLK", "WRLCK", 0, 10)' 'WRLCK 0 10 *'

it "OFD locks go with the handle's last close, not with another handle's"
says A 'os.close(op("ofd", "RDONLY"))' ok
says B 'record(b, "SETLK", "WRLCK", 0, 10)' 'E@(AGAIN|ACCES)'
says A 'd = os.dup(o); os.close(o)' ok
says B 'record(b, "SETLK", "WRLCK", 0, 10)' 'E@(AGAIN|ACCES)'
says A 'os.close(d)' ok
expect eventually 2 answers B 'record(b, "SETLK", "WRLCK", 0, 10)' ok
says A 'os.close(q)' ok
says B 'os.close(b)' ok
expect eventually 2 absent ofd

it "OFD F_SETLKW waits"
says A 'o = op("ofdw", "RDWR|CREAT"); record(o, "SETLK", "WRLCK", 0, 10, True)' ok
says B 'b = op("ofdw", "RDWR|CREAT")' ok
tell B 'record(b, "SETLKW", "WRLCK", 0, 0, True)'
expect eventually 3 eval '[ "$(attribute ofdw waiters)" = 1 ]'
says A 'record(o, "SETLK", "UNLCK", 0, 10, True)' ok
expect_is "$(hear B)" ok
says A 'os.close(o)' ok
says B 'os.close(b)' ok

it "flock and fcntl of one handle do not exclude each other, those of two handles do"
says A 'a = op("both", "RDWR|CREAT"); flock(a, "EX"); record(a, "SETLK", "WRLCK")' ok
says B 'b = op("both", "RDWR|CREAT")' ok
says B 'flock(b, "EX|NB")' EAGAIN
says B 'record(b, "SETLK", "WRLCK")' 'E@(AGAIN|ACCES)'
says A 'flock(a, "UN")' ok
says B 'flock(b, "EX|NB")' EAGAIN
says A 'record(a, "SETLK", "UNLCK")' ok
says B 'flock(b, "EX|NB")' ok
says A 'record(a, "SETLK", "WRLCK")' 'E@(AGAIN|ACCES)'
says B 'os.close(b)' ok
says A 'os.close(a)' '@(ok|EBUSY)'
expect eventually 2 absent both

it "record locks and leases exclude each other"
says A 'acquire("mix")' ok
says B 'b = op("mix", "RDONLY"); record(b, "SETLK", "RDLCK")' 'E@(AGAIN|ACCES)'
says A 'rm("mix")' ok
says B 'record(b, "SETLK", "RDLCK")' ok
says A 'acquire("mix")' EEXIST
says B 'os.close(b)' ok
expect eventually 2 absent mix

it "random programs of record locks, also through inherited files, get the answers of tmpfs"
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    oracle=$(mktemp -d /dev/shm/leasefs.XXXXXX)
    for seed in 1 2 3; do
        expect timeout 60 "$PYTHON" "$E2E_DIR/records.py" "$oracle" "$MNT" "$seed" 100
    done
    rm -r "$oracle"
else
    pass # no tmpfs to ask
fi

it "F_GETLK by the owner of a lease tells no conflict, and a file that was only probed does not become one"
says A 'a = op("probe", "WRONLY|CREAT")' ok
says A 'record(a, "GETLK", "WRLCK")' UNLCK
says B 'b = op("probe", "RDONLY")' ok
says B 'record(b, "GETLK", "WRLCK")' "WRLCK 0 0 ${actor_pid[A]}"
says A 'os.close(a)' ok
expect eventually 2 absent probe
expect constantly 300 absent probe
says A 'a = op("probe", "WRONLY|CREAT|EXCL")' ok
says A 'record(a, "GETLK", "WRLCK")' UNLCK
says A 'child("record(a, \"GETLK\", \"WRLCK\")")' UNLCK
says B 'record(b, "GETLK", "WRLCK")' "WRLCK 0 0 ${actor_pid[A]}"
says A 'os.close(a)' ok
says A 'rm("probe")' ok
says B 'os.close(b)' ok

it "a record lock through the owner's handle turns its lease, also in a child: a POSIX lock ends with it, an OFD lock with the handle"
says A 'a = op("turn", "WRONLY|CREAT|EXCL")' ok
says A 'child("record(a, \"SETLKW\", \"WRLCK\")")' ok
expect eventually 2 absent turn
says A 'os.close(a)' ok
says A 'a = op("turn", "WRONLY|CREAT|EXCL")' ok
says A 'child("record(a, \"SETLKW\", \"WRLCK\", 0, 0, True)")' ok
expect_is "$(attribute turn kind)" fcntl
expect constantly 200 exists turn
says A 'os.close(a)' ok
expect eventually 2 absent turn

it "what is written through a file with a record lock and a flock is the older one's, and ends with that"
for first in record flock; do
    for text in he held; do
        says A 'a = op("both", "RDWR|CREAT")' ok
        [ $first = record ] || says A 'flock(a, "EX")' ok
        says A 'record(a, "SETLK", "WRLCK", 0, 10)' ok
        says A 'write(a, "he")' ok
        says A 'record(a, "SETLK", "WRLCK", 20, 10)' ok
        [ $first = flock ] || says A 'flock(a, "EX|NB")' ok
        [ $text = he ] || says A 'write(a, "ld")' ok
        says A 'os.chmod(path("both"), 0o640)' ok
        says B 'content("both")' $text
        [ $first = flock ] || says A 'record(a, "SETLK", "UNLCK", 0, 10)' ok
        [ $first = flock ] || says A 'record(a, "SETLK", "UNLCK", 20, 10)' ok
        [ $first = record ] || says A 'flock(a, "UN")' ok
        says B 'content("both")' ''
        expect_not [ "$(stat -c %a "$MNT/both")" = 640 ]
        says A 'os.pwrite(a, b"!", 0)' 1
        says B 'content("both")' '!'
        says A 'os.close(a)' ok
        expect eventually 2 absent both
    done
done

it "lockf(3) as Python's fcntl.lockf and flock --fcntl"
says A 'a = op("lockf", "RDWR|CREAT"); fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB)' ok
says B 'b = op("lockf", "RDWR"); fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)' 'E@(AGAIN|ACCES)'
says A 'fcntl.lockf(a, fcntl.LOCK_UN)' ok
says B 'fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)' ok
closed_both() { says A 'os.close(a)' '@(ok|EBUSY)' && says B 'os.close(b)' ok; }
closed_both

finish
