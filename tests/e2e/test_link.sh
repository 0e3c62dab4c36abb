#!/bin/bash
# link(2) and rename(2): mv and ln as commands, and a rename beside others that have the name open.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "nobody who opens what is being renamed gets ESTALE"
counts_shown=$("$PYTHON" -S -E "$E2E_DIR/renames.py" "$MNT" "${E2E_SECONDS:-4}" 8 2>"$TEST_DIR/counts")
expect_re "$counts_shown" '^renames [0-9]{2,} opens [0-9]{3,} ESTALE 0$' || sed 's/^/# /' "$TEST_DIR/counts"

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
