#!/bin/bash
# The section "Reading": content, stat and the extended attributes.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "content is what the holder wrote"
says A 'f = op("content", "RDWR|CREAT|EXCL"); write(f, "one\n"); write(f, "two\n")' ok
expect_is "$(cat "$MNT/content")" $'one\ntwo'
says B 'content("content")' 'one\\ntwo\\n'
says A 'os.pwrite(f, b"ONE", 0)' 3
says A 'os.lseek(f, 0, 2) and write(f, "three")' ok
expect_is "$(cat "$MNT/content")" $'ONE\ntwo\nthree'
expect_is "$(stat -c %s "$MNT/content")" 13
says A 'truncate(f, 3)' ok
expect_is "$(cat "$MNT/content")" ONE
says A 'truncate("content", 5); content("content") == "ONE\0\0"' '*'
expect_is "$(stat -c %s "$MNT/content")" 5
says A 'g = op("content", "WRONLY|TRUNC")' ok
expect_is "$(stat -c %s "$MNT/content")" 0
says A 'g = op("content", "WRONLY|APPEND"); write(g, "a"); write(g, "b")' ok
expect_is "$(cat "$MNT/content")" ab

it "content may be 64 KiB and not a byte more: EFBIG, and what was there stays"
says A 'f = op("big", "RDWR|CREAT|EXCL")' ok
says A 'write(f, "x" * 65536)' ok
says A 'write(f, "y")' EFBIG
says A 'truncate(f, 65537)' EFBIG
says A 'os.pwrite(f, b"y", 10**9)' EFBIG
expect_is "$(stat -c %s "$MNT/big")" 65536
expect_is "$(tr -d x <"$MNT/big" | wc -c)" 0
says A 'truncate(f, 65536)' ok

it "a handle that the owner opened and its child inherited can write"
says A 'f = op("inherited", "RDWR|CREAT|EXCL")' ok
says A 'child("write(f, \"from the child\")")' ok
expect_is "$(cat "$MNT/inherited")" "from the child"

it "a descendant may set content by path"
says A 'child("truncate(\"inherited\", 4)")' ok
expect_is "$(cat "$MNT/inherited")" from
says B 'truncate("inherited", 0)' 'E@(PERM|BUSY)'
expect_is "$(cat "$MNT/inherited")" from

it "content of an earlier lease is not in a later one"
says A 'acquire("fresh", "secret"); rm("fresh"); acquire("fresh")' ok
expect_is "$(stat -c %s "$MNT/fresh")" 0
expect_is "$(cat "$MNT/fresh")" ""

it "reading neither acquires nor renews"
now
T=$NOW
says A 'acquire("term"); put("term", "ttl", "700ms")' ok
read_it() { cat "$MNT/term" >/dev/null 2>&1 && stat "$MNT/term" >/dev/null 2>&1; }
left=700
while read_it && now && [ $((NOW - T)) -lt 20000 ]; do
    before=$left
    left=$(remaining term)
    expect [ "${left:-0}" -le "$before" ]
    pause 0.05
done
now
expect_between 680 $((NOW - T)) 19999 "milliseconds that it lasted" # the clock is read in hundredths

it "stat: owner and group of who acquired, mode from its umask, nlink 1 or more"
says A 'os.umask(0o027) and None; acquire("stat")' ok
expect_is "$(stat -c %u:%g "$MNT/stat")" 0:0
expect_is "$(stat -c %a "$MNT/stat")" 640
expect_is "$(stat -c %F "$MNT/stat")" "regular empty file"
expect [ "$(stat -c %h "$MNT/stat")" -ge 1 ]
says A 'os.umask(0o022) and None; acquire("stat2")' ok
expect_is "$(stat -c %a "$MNT/stat2")" 644

it "chmod by the owner and its descendants is kept"
says A 'os.chmod(path("stat"), 0o600)' ok
expect_is "$(stat -c %a "$MNT/stat")" 600
says A 'child("os.chmod(path(\"stat\"), 0o604)")' ok
expect_is "$(stat -c %a "$MNT/stat")" 604

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

it "st_ino is the same through path and handle while held"
says A 'f = op("ino", "RDWR|CREAT|EXCL")' ok
says A 'stat("ino", "ino") == stat(f, "ino")' True
says B 'g = op("ino", "RDONLY"); r = stat(g, "ino") == stat("ino", "ino")' ok
says B r True
ino=$(stat -c %i "$MNT/ino")
pause 0.2
expect_is "$(stat -c %i "$MNT/ino")" "$ino"
says A 'close(f)' ok
expect_is "$(stat -c %i "$MNT/ino")" "$ino"

it "user.lease.state, kind and mode of a lease"
says A 'acquire("attr")' ok
expect_is "$(attribute attr state)" held
expect_is "$(attribute attr kind)" lease
expect_is "$(attribute attr mode)" exclusive

it "user.lease.owner: host pid uid command"
says A 'pid()' "${actor_pid[A]}"
expect_re "$(attribute attr owner)" "^$(uname -n) ${actor_pid[A]} 0 python3[^ ]*\$"

it "user.lease.token: a decimal integer, larger for a later grant of the name"
first=$(attribute attr token)
expect_re "$first" '^[1-9][0-9]*$'
says A 'rm("attr")' ok
before=$EPOCHSECONDS
says B 'acquire("attr")' ok
expect [ "$(attribute attr token)" -gt "$first" ]
says B 'rm("attr"); acquire("attr")' ok
expect [ "$(attribute attr token)" -gt $((first + 1)) ]

it "user.lease.acquired: RFC 3339 UTC"
acquired=$(attribute attr acquired)
expect_re "$acquired" '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$'
expect_between $((before - 1)) "$(date -d "$acquired" +%s)" $((EPOCHSECONDS + 1))

it "user.lease.remaining: seconds, three decimals, going down to the renewal"
expect_re "$(attribute attr remaining)" '^[0-9]+\.[0-9]{3}$'
expect_between 10000 "$(remaining attr)" 30000
says B 'put("attr", "ttl", "10s")' ok
now
T=$NOW
before=$(remaining attr)
pause 0.3
after=$(remaining attr)
now
expect_between $((before - (NOW - T) - 5)) "$after" $((before - 250))

it "user.lease.ttl: 30 s by default"
says A 'acquire("default")' ok
expect_is "$(milliseconds "$(attribute default ttl)")" 30000

it "user.lease.waiters: nobody waits"
expect_is "$(attribute attr waiters)" 0

it "user.lease.check: success with the current token, else ESTALE"
token=$(attribute attr token)
says A "put('attr', 'check', '$token')" ok
says A "put('attr', 'check', '$first')" ESTALE
says A "put('attr', 'check', '$((token + 1))')" ESTALE
says A "put('attr', 'check', 'x')" 'E@(INVAL|STALE)'

it "the attributes can be listed and dumped"
names=$(ask A 'sorted(os.listxattr(path("attr")))')
for name in acquired guarantee kind mode owner remaining state token ttl waiters; do
    expect_is "$names" "*'user.lease.$name'*"
done
expect getfattr --absolute-names -d "$MNT/attr" >"$TEST_DIR/dump"
expect grep -q 'user.lease.kind="lease"' "$TEST_DIR/dump"
says A 'len(os.getxattr(path("attr"), "user.lease.owner")) > 4' True

it "attributes of a directory: ttl, waiters, width"
says A 'os.mkdir(path("dir"))' ok
expect_is "$(attribute dir waiters)" 0
expect_is "$(attribute dir width)" 1
expect_is "$(milliseconds "$(attribute dir ttl)")" 30000
says A 'put("dir", "ttl", "5m")' ok
expect_is "$(milliseconds "$(attribute dir ttl)")" 300000

it "an attribute that does not exist is ENODATA to read and EINVAL to set under user.lease"
says A 'get("attr", "nonsense")' ENODATA
says B 'put("attr", "nonsense", "1")' EINVAL

it "attributes that tell cannot be set"
for name in state kind mode owner token acquired remaining waiters; do
    says B "put('attr', '$name', '1')" 'E@(PERM|INVAL|ACCES|OPNOTSUPP)'
done
expect_is "$(attribute attr kind)" lease

it "a provisional handle's attributes: held"
says A 'f = op("prov")' ok
expect_is "$(attribute prov state)" held
says A 'close(f)' ok

finish
