#!/bin/bash
# link(2) and rename(2): the tables "Acquiring" and "Releasing" for lockfile-progs, dotlockfile, procmail, git.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "link(tmp, L) acquires L for the caller with tmp's content; same inode and nlink 2 while both exist"
says A 'acquire("tmp", "pid 17\n")' ok
says A 'hardlink("tmp", "l")' ok
expect exists l
expect_is "$(cat "$MNT/l")" "pid 17"
expect_is "$(stat -c %h "$MNT/l")" 2
expect_is "$(stat -c %h "$MNT/tmp")" 2
expect_is "$(stat -c %i "$MNT/l")" "$(stat -c %i "$MNT/tmp")"
expect_is "$(attribute l owner)" "* ${actor_pid[A]} 0 *"

it "link to a held name is EEXIST"
says B 'acquire("tmp2", "b")' ok
says B 'hardlink("tmp2", "l")' EEXIST
says A 'hardlink("tmp", "l")' EEXIST
says A 'hardlink("tmp", "tmp2")' EEXIST
expect_is "$(cat "$MNT/l")" "pid 17"

it "unlink(tmp) leaves L, and nlink is 1 again"
says A 'rm("tmp")' ok
expect absent tmp
expect exists l
expect_is "$(stat -c %h "$MNT/l")" 1
expect_is "$(cat "$MNT/l")" "pid 17"
says B 'rm("l")' EPERM
says A 'rm("l")' ok
expect absent l
says B 'rm("tmp2")' ok

it "unlink(L) first leaves tmp"
says A 'acquire("tmp"); hardlink("tmp", "l"); rm("l")' ok
expect absent l
expect exists tmp
expect_is "$(stat -c %h "$MNT/tmp")" 1
says A 'rm("tmp")' ok

it "link of a free name is ENOENT, of another's lock refused"
says A 'hardlink("nothing", "l")' ENOENT
says B 'acquire("bs")' ok
says A 'hardlink("bs", "l")' 'E@(PERM|BUSY)'
expect absent l
says B 'rm("bs")' ok

it "each of two names keeps its own lease: one expires, the other stays"
says A 'acquire("t1"); hardlink("t1", "t2"); put("t1", "ttl", "300ms")' ok
expect eventually 3 absent t1
expect constantly 300 exists t2
says A 'rm("t2")' ok

it "rename of the caller's own lease to a free name moves it, token and content with it"
says A 'acquire("from", "content")' ok
token=$(attribute from token)
says A 'mv("from", "to")' ok
expect absent from
expect_is "$(cat "$MNT/to")" content
expect [ "$(attribute to token)" -ge "$token" ]
expect_is "$(attribute to owner)" "* ${actor_pid[A]} 0 *"
says B 'acquire("to")' EEXIST
says B 'acquire("from")' ok
says B 'rm("from")' ok

it "rename onto a lock of another is EBUSY, of another's lock EPERM"
says B 'acquire("bs", "b")' ok
says A 'mv("to", "bs")' EBUSY
says A 'mv("bs", "free")' EPERM
expect_is "$(cat "$MNT/to")" content
expect_is "$(cat "$MNT/bs")" b
expect absent free

it "rename onto another lease of one's own replaces it"
says A 'acquire("target", "old")' ok
says A 'mv("to", "target")' ok
expect absent to
expect_is "$(cat "$MNT/target")" content
says A 'rm("target")' ok

it "a child cannot rename its lease over its parent's, and nothing changes"
says A 'acquire("parents", "p")' ok
token=$(attribute parents token)
says A 'child("acquire(\"childs\", \"c\"); mv(\"childs\", \"parents\")")' EBUSY
expect_is "$(attribute parents token) $(cat "$MNT/parents")" "$token p"
says A 'f = op("parents", "RDWR"); write(f, "P"); close(f)' ok
expect_is "$(cat "$MNT/parents")" P
says A 'rm("parents")' ok

it "a rename onto one's own lease that another waits for keeps the name, and the other waiting"
says A 'acquire("mine", "new"); acquire("wanted", "old")' ok
pause 1.1 # no longer in its first second
tell B 'f = op("wanted", "RDWR"); fcntl.flock(f, fcntl.LOCK_EX)'
expect eventually 5 waiters wanted 1
says A 'mv("mine", "wanted")' ok
expect absent mine
expect_is "$(attribute wanted kind) $(cat "$MNT/wanted")" "lease new"
expect_is "$(attribute wanted waiters)" 1
says A 'rm("wanted")' ok
expect_is "$(hear B)" ok
expect_is "$(attribute wanted kind)" flock
says A 'acquire("mine", "new"); mv("mine", "wanted")' EBUSY
expect_is "$(attribute wanted kind) $(cat "$MNT/mine")" "flock new"
says B 'close(f)' ok
says A 'rm("mine")' ok

it "what a dead process holds is not replaced; the same user may move it, which takes nothing over"
actor D
says D 'acquire("left", "d")' ok
owner=$(attribute left owner)
pause 1.1 # nobody inherits it any more
end_actor D
says A 'acquire("mine"); mv("mine", "left")' EBUSY
expect_is "$(cat "$MNT/left")" d
says A 'mv("left", "free")' ok
expect absent left
expect_is "$(cat "$MNT/free") $(attribute free owner)" "d $owner"
expect exists mine
says A 'rm("free"); rm("mine")' ok

it "RENAME_NOREPLACE is EEXIST, RENAME_EXCHANGE EINVAL, and nothing changes"
says A 'acquire("x", "1"); acquire("y", "2")' ok
says A 'renameat2("x", "y", 1)' EEXIST
says A 'renameat2("x", "y", 2)' EINVAL
expect_is "$(cat "$MNT/x" "$MNT/y")" 12
says A 'renameat2("x", "z", 1); rm("z"); rm("y")' ok

it "a lease is not renamed over a handle lock of the same process, nor is that moved"
says A 'f = op("locked"); fcntl.flock(f, fcntl.LOCK_EX); acquire("mine")' ok
says A 'mv("mine", "locked")' EBUSY
says A 'mv("locked", "free")' EPERM
expect_is "$(attribute locked kind)" flock
expect exists mine
says A 'close(f); rm("mine")' ok

it "nobody who opens what is being renamed gets ESTALE"
counts_shown=$("$PYTHON" -S -E "$E2E_DIR/renames.py" "$MNT" "${E2E_SECONDS:-4}" 8 2>"$TEST_DIR/counts")
expect_re "$counts_shown" '^renames [0-9]{2,} opens [0-9]{3,} ESTALE 0$' || sed 's/^/# /' "$TEST_DIR/counts"

it "rename of a free name is ENOENT, into another directory works, onto a directory is EISDIR"
says A 'mv("nothing", "x")' ENOENT
says A 'os.mkdir(path("d")); acquire("m"); mv("m", "d/m")' ok
expect exists d/m
expect absent m
says A 'acquire("n"); mv("n", "d")' EISDIR
says A 'rm("d/m"); rm("n"); os.rmdir(path("d"))' ok

it "a handle stays with its lease through a rename"
says A 'f = op("h1", "RDWR|CREAT|EXCL"); write(f, "one"); mv("h1", "h2"); write(f, "two")' ok
expect_is "$(cat "$MNT/h2")" onetwo
says A 'close(f); rm("h2")' ok

it "mv and ln as commands: the script's lease is moved and linked by its helpers"
expect bash -c 'echo mine >"$1/s1" && mv "$1/s1" "$1/s2" && ln "$1/s2" "$1/s3" && rm "$1/s2" && cat "$1/s3" && rm "$1/s3"' _ "$MNT" >"$TEST_DIR/out"
expect_is "$(cat "$TEST_DIR/out")" mine

# Faults that random histories have shown.

it "a lease is not renamed while others have its name open: they would lock the name that it has then"
says A 'acquire("old")' ok
says B 'b = op("old", "RDONLY")' ok
says A 'mv("old", "new")' EBUSY
says B 'flock(b, "EX|NB")' EAGAIN
says B 'close(b)' ok
expect eventually 2 answers A 'mv("old", "new")' ok
expect absent old
says B 'b = op("old", "RDONLY|CREAT"); flock(b, "EX|NB")' ok
expect exists new
says A 'rm("new")' ok
says B 'rm("old"); close(b)' ok

it "a name whose lease was renamed to another, and gone from there, is seen when it is locked by a handle of before"
says B 'b = op("target", "RDONLY|CREAT")' ok
says A 'acquire("temporary"); mv("temporary", "target"); rm("target")' ok
expect absent target
says B 'flock(b, "EX|NB")' ok
expect exists target
says B 'close(b)' ok
expect eventually 2 absent target

it "each of two shared holders removes its own lock, whatever has had the name since they opened it"
says B 'b = op("both", "RDONLY|CREAT")' ok
says A 'ln("nobody", "both"); rm("both")' ok
says A 'a = op("both", "RDONLY|CREAT")' ok
says B 'flock(b, "SH|NB")' ok
says A 'flock(a, "SH|NB")' ok
says A 'rm("both")' ok
expect exists both
says B 'rm("both")' ok
expect absent both
says A 'close(a)' ok
says B 'close(b)' ok

finish
