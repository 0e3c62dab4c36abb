#!/bin/bash
# The section "Losing": what the handles of a lease that ended see.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

lost() { # the handle f of A has lost NAME
    says A 'read(f)' ESTALE
    says A 'write(f, "late")' ESTALE
    says A 'os.fsync(f)' ESTALE
    says A 'utime(f)' ESTALE
    says A 'get(f, "state")' lost
}

it "a lease whose time ran out is lost: read, write, fsync and times through its handle are ESTALE, state reads lost"
says A 'f = op("ran-out", "RDWR|CREAT|EXCL"); write(f, "text")' ok
says A 'put("ran-out", "ttl", "300ms")' ok
says A 'read(f)' text
says A 'get(f, "state")' held
expect eventually 3 absent ran-out
lost

it "close of a handle that lost its lease still succeeds, and acquires nothing"
says A 'close(f)' ok
expect constantly 300 absent ran-out

it "a lease broken by an administrator is lost"
says A 'f = op("broken", "RDWR|CREAT|EXCL"); write(f, "text")' ok
says B 'put("broken", "break", 1)' ok
expect absent broken
lost
says A 'close(f)' ok
expect constantly 300 absent broken

it "a lease released by its token is lost for the handle"
says A 'f = op("given", "RDWR|CREAT|EXCL"); write(f, "text")' ok
says B 'put("given", "release", get("given", "token"))' ok
expect absent given
says A 'write(f, "late")' ESTALE
says A 'close(f)' ok

it "a holder that lost L does not touch the lease of whoever came after it"
says A 'f = op("next", "RDWR|CREAT|EXCL"); write(f, "first")' ok
says A 'put("next", "ttl", "200ms")' ok
expect eventually 3 answers B 'acquire("next", "second")' ok
lost
says A 'truncate(f, 0)' ESTALE
says A 'rm("next")' EPERM
says A 'put("next", "ttl", "100ms")' EPERM
says A 'close(f)' ok
says B 'content("next")' second
expect_is "$(cat "$MNT/next")" second
expect_is "$(attribute next state)" held

it "a lost name can be acquired again by the one who lost it"
says A 'f = op("mine", "RDWR|CREAT|EXCL"); put("mine", "ttl", "100ms")' ok
expect eventually 3 absent mine
says A 'acquire("mine", "anew")' ok
says A 'write(f, "old")' ESTALE
says A 'close(f)' ok
expect_is "$(cat "$MNT/mine")" anew
says A 'rm("mine")' ok

finish
