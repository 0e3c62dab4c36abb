#!/bin/bash
# Releasing by scripts and their helpers; a lock that was broken; holders that were stopped.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory ttl=30
actor A
actor B

it "touch L && make; rm L: what a script's helper took, another helper of it removes"
expect bash -c 'touch "$1" && sleep 0.1 && rm "$1"' _ "$MNT/build"
expect bash -c 'touch "$1" && sleep 1.3 && rm "$1"' _ "$MNT/build"
expect absent build

it "a parent that has read a helper's output to its end, and not waited for it, removes what it took"
expect "$PYTHON" -c '
import os, subprocess, sys
for i in range(40):
    with subprocess.Popen(["sh", "-c", "touch \"$1\"; true", "_", sys.argv[1]], stdout=subprocess.PIPE) as helper:
        helper.stdout.read()
        os.unlink(sys.argv[1])
' "$MNT/read"
expect absent read

it "a parent that has not waited for a helper which has ended moves what it took"
expect "$PYTHON" -c '
import os, subprocess, sys
helper = subprocess.Popen(["touch", sys.argv[1]])
os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)
os.rename(sys.argv[1], sys.argv[2])
os.unlink(sys.argv[2])
helper.wait()
' "$MNT/made" "$MNT/moved"
expect absent moved

it "user.lease.break by root releases whoever holds it, and the log says who broke whose lock"
says A 'acquire("broken")' ok
says B 'put("broken", "break", "1")' ok
expect absent broken
expect eventually 2 grep -q "${actor_pid[A]}.* was broken by .*pid ${actor_pid[B]}" "$LOG"

it "holder A stopped past its fixed TTL, B takes L, A goes on: its rm is EPERM, B still holds, A's token fails the check"
says A 'acquire("stop")' ok
says A 'put("stop", "ttl", "500ms")' ok
stale=$(attribute stop token)
kill -STOP "${actor_pid[A]}"
expect eventually 10 answers B 'acquire("stop", "bs")' ok
expect eventually 1 exists stop
kill -CONT "${actor_pid[A]}"
says A 'rm("stop")' EPERM
says A "put('stop', 'check', '$stale')" ESTALE
says A "put('stop', 'release', '$stale')" ESTALE
says B "put('stop', 'check', get('stop', 'token'))" ok
says B 'content("stop")' bs
expect [ "$(attribute stop token)" -gt "$stale" ]

it "a stopped holder whose renewal is automatic keeps its lease: it lives"
MNT_LONG=$MNT
mount_memory ttl=600ms
actor S
actor T
says S 'acquire("stopped")' ok
kill -STOP "${actor_pid[S]}"
expect constantly 1800 exists stopped
says T 'rm("stopped")' EPERM
kill -CONT "${actor_pid[S]}"
says S 'rm("stopped")' ok

finish
