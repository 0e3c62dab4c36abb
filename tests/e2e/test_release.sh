#!/bin/bash
# The table "Releasing": who may remove whose lock, and how else a lock ends.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory ttl=30
actor A
actor B

it "unlink by the owner releases"
says A 'acquire("own")' ok
says A 'rm("own")' ok
expect absent own
says B 'acquire("own")' ok
says B 'rm("own")' ok

it "unlink by a descendant of the owner releases"
says A 'acquire("child"); acquire("grandchild")' ok
says A 'child("rm(\"child\")")' ok
says A 'child("child(\"rm(\\\"grandchild\\\")\")")' ok
expect absent child
expect absent grandchild

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

it "unlink by anybody else while the owner lives is EPERM, root included, and nothing happens"
says A 'acquire("theirs", "text")' ok
token=$(attribute theirs token)
says B 'os.getuid()' 0
says B 'rm("theirs")' EPERM
expect_not rm -f "$MNT/theirs" 2>/dev/null
expect_is "$(attribute theirs token)" "$token"
expect_is "$(cat "$MNT/theirs")" text

it "the owner's parent, too, is anybody else"
says A 'p = fork("acquire(\"sons\")")' ok
says A 'rm("sons")' EPERM
pause 1.2
says A 'rm("sons")' EPERM
says A 'kill(p); reap(p)' ok

it "unlink by anybody of the same uid when the owner is dead releases"
says B 'rm("sons")' ok
expect absent sons
actor C
says C 'acquire("widowed")' ok
pause 1.2
end_actor C
says B 'mv("widowed", "orphaned")' ok
says B 'mv("orphaned", "widowed")' ok
says B 'rm("widowed")' ok
expect absent widowed
expect absent orphaned

it "a provisional name cannot be removed by another"
says A 'f = op("prov")' ok
says B 'rm("prov")' EPERM
says A 'rm("prov")' ok
expect absent prov

it "after the owner unlinks L its open handle neither writes nor acquires by closing"
says A 'f = op("unlinked", "RDWR|CREAT|EXCL"); write(f, "x")' ok
says A 'rm("unlinked")' ok
says A 'write(f, "y")' ESTALE
says A 'close(f)' '*'
expect constantly 300 absent unlinked
says A 'f = op("unlinked")' ok
says A 'rm("unlinked")' ok
says A 'close(f)' '*'
expect constantly 300 absent unlinked

it "unlinking a free name is ENOENT"
says A 'rm("nothing")' ENOENT

it "user.lease.release with the current token releases, by anybody who knows it"
says A 'acquire("token")' ok
token=$(attribute token token)
says B "put('token', 'release', '$((token + 1))')" ESTALE
says B "put('token', 'release', '$((token - 1))')" ESTALE
expect exists token
says B "put('token', 'release', '$token')" ok
expect absent token

it "user.lease.release with the token of an earlier grant is ESTALE"
says A 'acquire("token")' ok
says A "put('token', 'release', '$token')" ESTALE
expect exists token

it "user.lease.break by root releases whoever holds it, and the log says who broke whose lock"
says A 'acquire("broken")' ok
says B 'put("broken", "break", "1")' ok
expect absent broken
expect eventually 2 grep -q "${actor_pid[A]}.* was broken by .*pid ${actor_pid[B]}" "$LOG"

it "user.lease.break wants a 1, and breaks nothing otherwise"
says A 'acquire("unbroken")' ok
says B 'put("unbroken", "break", "yes please")' EINVAL
expect exists unbroken

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

it "the token is larger for every later grant of the name"
last=0
for i in {1..12}; do
    if ((i % 3)); then
        says S 'acquire("grows")' ok
    else
        says T 'acquire("grows")' ok
        says T 'put("grows", "ttl", "100ms")' ok
    fi
    token=$(ask S 'get("grows", "token")')
    [ "$token" = ENODATA ] || [ "$token" = ENOENT ] || { expect [ "$token" -gt "$last" ]; last=$token; }
    if ((i % 3)); then says S 'rm("grows")' ok; else expect eventually 2 absent grows; fi
done

it "with owner=user a process of the same uid may unlink, one of another uid may not"
mount_memory owner=user,allow_other
actor U setpriv --reuid=65534 --regid=65534 --clear-groups
actor V setpriv --reuid=65534 --regid=65534 --clear-groups
actor W setpriv --reuid=12345 --regid=12345 --clear-groups
says U 'acquire("shared")' ok
says W 'rm("shared")' 'E@(PERM|ACCES)'
says V 'rm("shared")' ok
expect absent shared
says U 'acquire("shared")' ok
says V 'acquire("shared")' EEXIST
MNT=$MNT_LONG

finish
