#!/bin/bash
# The table "Acquiring": each call, on a free name and on one that another holds.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

# --- the calls that acquire at once ---

it "open(O_CREAT|O_EXCL) on a free name acquires a lease"
says A 'f = op("excl", "WRONLY|CREAT|EXCL")' ok
expect exists excl
expect_is "$(attribute excl state)" held
expect_is "$(attribute excl kind)" lease
expect_is "$(attribute excl mode)" exclusive
says A 'close(f)' ok
expect exists excl

it "open(O_CREAT|O_EXCL) on a held name is EEXIST for another, for a child and for the owner"
says B 'acquire("excl")' EEXIST
says A 'child("acquire(\"excl\")")' EEXIST
says A 'acquire("excl")' EEXIST

it "open(O_CREAT|O_EXCL) is EEXIST at once on a name that is only provisional"
says A 'f = op("prov-excl")' ok
now
T=$NOW
says B 'acquire("prov-excl")' EEXIST
says A 'acquire("prov-excl")' EEXIST
now
expect_between 0 $((NOW - T)) 700 "milliseconds taken"
says A 'os.fstat(f) and None' ok

it "a name can be acquired again as soon as it was released"
for _ in {1..20}; do
    says A 'acquire("again")' ok
    says A 'rm("again")' ok
    expect absent again
    says B 'acquire("again")' ok
    says B 'rm("again")' ok
done

it "symlink acquires a lease whose content is the target"
says A 'ln("some/where else", "sym")' ok
expect exists sym
expect_is "$(readlink "$MNT/sym")" "some/where else"
expect_is "$(stat -c %F "$MNT/sym")" "symbolic link"

it "symlink on a held name is EEXIST, and on a symlink lease open(O_EXCL) and symlink are EEXIST"
says B 'ln("other", "sym")' EEXIST
says B 'ln("other", "excl")' EEXIST
says B 'acquire("sym")' EEXIST
says A 'ln("other", "sym")' EEXIST
expect_is "$(readlink "$MNT/sym")" "some/where else"

it "a symlink lease is refused to who opens it, and leads to no other name"
pause 1.2
for flags in RDONLY 'WRONLY|CREAT' 'RDWR|CREAT' 'WRONLY|CREAT|TRUNC'; do says B "op('sym', '$flags')" ELOOP; done
expect_not touch "$MNT/sym" 2>/dev/null
expect_not flock -n "$MNT/sym" true 2>/dev/null
says A 'ln("elsewhere", "near")' ok
says B 'op("near")' ELOOP
expect absent elsewhere
says A 'rm("near")' ok

it "a symlink lease is released by its owner only"
says B 'rm("sym")' EPERM
says A 'rm("sym")' ok
expect absent sym

# --- reading acquires nothing ---

it "open for reading of a free name is ENOENT"
says A 'op("free", "RDONLY")' ENOENT
expect absent free

it "open(O_RDONLY|O_CREAT) of a free name succeeds and acquires nothing, nor does its close"
says A 'f = op("rocreat", "RDONLY|CREAT")' ok
expect absent rocreat
says B 'exists("rocreat")' False
says B 'acquire("rocreat")' ok
says B 'rm("rocreat")' ok
says A 'close(f)' ok
expect constantly 300 absent rocreat

it "open for reading of a held name succeeds, O_CREAT included, and changes nothing"
says A 'acquire("read-me", "text")' ok
says B 'content("read-me")' text
says B 'f = op("read-me", "RDONLY|CREAT")' ok
says B 'read(f)' text
says B 'close(f)' ok
says B 'rm("read-me")' EPERM

# --- opened for writing: what the program does next decides ---

it "write(2) on a provisional name makes it a lease with these bytes"
says A 'w = op("written")' ok
says A 'write(w, "bytes")' ok
expect_is "$(attribute written kind)" lease
expect_is "$(cat "$MNT/written")" bytes

it "futimens by the process that opened for writing makes it a lease"
says A 't = op("timed")' ok
says A 'utime(t)' ok
expect_is "$(attribute timed kind)" lease

it "utimensat by path, by the process that opened for writing, makes it a lease"
says A 'u = op("timed-path")' ok
says A 'utime("timed-path")' ok
expect_is "$(attribute timed-path kind)" lease

it "close by the process that opened for writing makes it a lease"
says A 'c = op("closed")' ok
says A 'close(c)' ok
expect_is "$(attribute closed kind)" lease
says A 'c = op("closed-rw", "RDWR|CREAT")' ok
says A 'close(c)' ok
says A 'c = op("closed-trunc", "WRONLY|CREAT|TRUNC")' ok
says A 'close(c)' ok
now
acquired=$NOW
expect exists closed-rw
expect exists closed-trunc

it "in the first second of another's lease every write-open is EBUSY, a child of the owner included"
says A 'acquire("fresh")' ok
says B 'op("fresh", "WRONLY")' EBUSY
says B 'op("fresh", "WRONLY|CREAT")' EBUSY
says B 'op("fresh", "RDWR|CREAT|TRUNC")' EBUSY
says A 'child("op(\"fresh\")")' EBUSY
says B 'utime("fresh")' EBUSY

it "a name that is only opened and then left alone is given back within the provisional second"
now
T=$NOW
says A 'i = op("idle")' ok
expect exists idle
expect eventually 5 absent idle
now
expect_between 900 $((NOW - T)) $((1000 + SLACK)) "milliseconds that it was there"
says A 'get(i, "state")' free

it "write, times, a write-open and close are leases for longer than the provisional second"
until_time $((acquired + 1300))
for name in excl written timed timed-path closed closed-rw closed-trunc fresh; do
    expect exists "$name"
done

# --- the lease is older than a second now ---

it "after the first second a write-open of another's lease succeeds with an idle handle"
says B 'w = op("written", "RDWR|CREAT")' ok
says B 'read(w)' bytes

it "write on an idle handle of a held name is EBUSY and changes nothing"
says B 'write(w, "other")' EBUSY
expect_is "$(cat "$MNT/written")" bytes

it "ftruncate on an idle handle of a held name is EBUSY and changes nothing"
says B 'truncate(w, 0)' EBUSY
expect_is "$(cat "$MNT/written")" bytes

it "futimens and utimensat of a held name by another are EBUSY and change nothing"
before=$(stat -c %Y.%y "$MNT/closed")
says B 'c = op("closed")' ok
says B 'utime(c, 1000000000)' EBUSY
says B 'utime("closed", 1000000000)' EBUSY
says A 'child("utime(\"closed\", 1000000000)")' EBUSY
expect_not [ "$(stat -c %Y "$MNT/closed")" = 1000000000 ]
say "mtime was $before, is $(stat -c %Y.%y "$MNT/closed")"

it "touch of a directory, by the empty name of a lock, fails for everybody"
mkdir "$MNT/below"
for touch in touch "busybox touch" /usr/lib/cargo/bin/coreutils/touch; do
    if command -v "${touch%% *}" >/dev/null; then
        for directory in "$MNT/" "$MNT/below" "$MNT/below/."; do
            # shellcheck disable=SC2086
            expect_not $touch "$directory"
        done
    fi
done
says A 'utime(".")' EISDIR
rmdir "$MNT/below"

it "explicit close of an idle handle of a held name is EBUSY"
says B 'close(w)' EBUSY
says B 'close(c)' EBUSY
expect_is "$(cat "$MNT/written")" bytes

it "O_TRUNC by a non-holder is ignored"
says B 'w = op("written", "WRONLY|CREAT|TRUNC")' ok
expect_is "$(cat "$MNT/written")" bytes
says B 'close(w)' EBUSY
expect_is "$(cat "$MNT/written")" bytes

it "chmod of a held name by another does not alter it"
mode=$(stat -c %a "$MNT/written")
says B 'os.chmod(path("written"), 0o600)' EPERM
expect_is "$(stat -c %a "$MNT/written")" "$mode"

it "a process that exits with an idle handle acquires nothing and harms nothing"
says B 'child("op(\"written\") and None")' ok
says A 'content("written")' bytes
says B 'child("op(\"nobodys\") and None")' ok
expect eventually 2 absent nobodys

it "a read-only handle never acquires by closing"
says A 'r = op("ro", "RDONLY|CREAT")' ok
says A 'close(r)' ok
expect absent ro

# --- the owner itself ---

it "the owner opens, writes, sets times and closes again: a renewal"
says A 'w = op("excl", "WRONLY|CREAT|TRUNC")' ok
says A 'write(w, "mine")' ok
says A 'utime(w)' ok
says A 'utime("excl")' ok
says A 'close(w)' ok
expect_is "$(cat "$MNT/excl")" mine
says B 'op("excl", "RDONLY") and None' ok

it "threads of one process are one owner"
says A 'thread("acquire(\"threads\")")' ok
says A 'thread("acquire(\"threads\")")' EEXIST
says A 'w = op("threads", "WRONLY|TRUNC")' ok
says A 'thread("write(w, \"t\")")' ok
says A 'close(w)' ok
says A 'thread("rm(\"threads\")")' ok
expect absent threads

it "touch L && echo \$\$ > L works, fifty times"
for i in {1..50}; do
    # shellcheck disable=SC2016
    if [ "$(bash -c 'touch "$1" && echo $$ > "$1" && [ "$(cat "$1")" = $$ ] && rm "$1" && echo fine' _ "$MNT/shell$i" 2>&1)" = fine ]; then
        pass
    else
        fail "round $i"
    fi
done

it "a second touch of L fails, from the same shell, in the first second and after it"
expect bash -c 'touch "$1"; ! touch "$1"' _ "$MNT/twice" 2>/dev/null
T=$NOW
expect touch "$MNT/mine"
expect_not touch "$MNT/mine" 2>/dev/null
expect_not busybox touch "$MNT/mine" 2>/dev/null
pause 1.3
expect_not touch "$MNT/mine" 2>/dev/null
expect_not busybox touch "$MNT/mine" 2>/dev/null
expect_not ln -s x "$MNT/mine" 2>/dev/null
expect_not bash -c 'set -C; : > "$1"' _ "$MNT/mine" 2>/dev/null
expect rm "$MNT/mine"

it "an application's own times and mode are kept: touch -d, umask"
expect touch -d '2001-02-03 04:05:06.789 UTC' "$MNT/dated"
expect_is "$(stat -c %Y "$MNT/dated")" 981173106
expect rm "$MNT/dated"

# --- directories ---

it "mkdir and rmdir: they persist, EEXIST and ENOTEMPTY as usual"
says A 'os.mkdir(path("dir"))' ok
says A 'os.mkdir(path("dir"))' EEXIST
says B 'os.mkdir(path("dir"))' EEXIST
says A 'os.mkdir(path("excl"))' EEXIST
says A 'acquire("dir/lock")' ok
says A 'os.rmdir(path("dir"))' ENOTEMPTY
says A 'rm("dir/lock")' ok
says B 'os.rmdir(path("dir"))' ok
expect absent dir

it "a directory has no lease: it stays when its maker ends"
actor C
says C 'os.mkdir(path("kept"))' ok
end_actor C
expect constantly 500 exists kept
expect rmdir "$MNT/kept"

finish
