#!/bin/bash
# Record locks by fcntl(2) beside leases and flocks; random programs of them against tmpfs.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

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

name="random programs of record locks, also through inherited files, get the answers of tmpfs"
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
    it "$name"
    oracle=$(mktemp -d /dev/shm/leasefs.XXXXXX)
    for seed in 1 2 3; do
        expect timeout 60 "$PYTHON" "$E2E_DIR/records.py" "$oracle" "$MNT" "$seed" 100
    done
    rm -r "$oracle"
else
    left_out "$name" "where /dev/shm is a tmpfs"
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
