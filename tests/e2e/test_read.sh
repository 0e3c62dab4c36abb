#!/bin/bash
# Reading with commands: stat and dumps of the extended attributes.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "stat: owner and group of who acquired, mode from its umask, nlink 1 or more"
says A 'os.umask(0o027) and None; acquire("stat")' ok
expect_is "$(stat -c %u:%g "$MNT/stat")" 0:0
expect_is "$(stat -c %a "$MNT/stat")" 640
expect_is "$(stat -c %F "$MNT/stat")" "regular empty file"
expect [ "$(stat -c %h "$MNT/stat")" -ge 1 ]
says A 'os.umask(0o022) and None; acquire("stat2")' ok
expect_is "$(stat -c %a "$MNT/stat2")" 644

it "mtime is the time of acquiring, ctime too"
before=$EPOCHSECONDS
says A 'acquire("times")' ok
expect_between $((before - 1)) "$(stat -c %Y "$MNT/times")" $((EPOCHSECONDS + 1)) mtime
expect_between $((before - 1)) "$(stat -c %Z "$MNT/times")" $((EPOCHSECONDS + 1)) ctime

it "times that the holder set are exactly those"
says A 'os.utime(path("times"), ns=(987654321123456789, 1234567890987654321))' ok
expect_is "$(stat -c %.9Y "$MNT/times")" 1234567890.987654321
says A 'stat("times", "mtime_ns")' 1234567890987654321
expect_between $((before - 1)) "$(stat -c %Z "$MNT/times")" $((EPOCHSECONDS + 1)) ctime

it "user.lease.owner: host pid uid command"
says A 'acquire("attr")' ok
says A 'pid()' "${actor_pid[A]}"
expect_re "$(attribute attr owner)" "^$(uname -n) ${actor_pid[A]} 0 python3[^ ]*\$"

it "the attributes can be listed and dumped"
names=$(ask A 'sorted(os.listxattr(path("attr")))')
for name in acquired guarantee kind mode owner remaining state token ttl waiters; do
    expect_is "$names" "*'user.lease.$name'*"
done
expect getfattr --absolute-names -d "$MNT/attr" >"$TEST_DIR/dump"
expect grep -q 'user.lease.kind="lease"' "$TEST_DIR/dump"
says A 'len(os.getxattr(path("attr"), "user.lease.owner")) > 4' True

finish
