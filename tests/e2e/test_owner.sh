#!/bin/bash
# "Holding, renewing, expiring": who owns a lease, for how long it is renewed, what becomes of it when its owner ends.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

TTL=1500
mount_memory ttl=1500ms
actor A
actor B

owner_pid() {
    local host pid rest
    read -r host pid rest <<<"$(attribute "$1" owner)"
    : "$host" "$rest"
    echo "$pid"
}

# The lease ends at its deadline, which is at most one TTL away from now: not before, and not later.
expect_end() { # NAME REMAINING_AT_DEATH
    now
    local death=$NOW
    expect eventually $(((TTL + SLACK) / 1000 + 3)) absent "$1"
    now
    # 200: a little for the clock being read in hundredths and the end being seen late
    expect_between $(($2 - 200)) $((NOW - death)) $((TTL + SLACK)) "milliseconds from the owner's end to the lease's"
}

# Runs a script in a shell of its own, which lives on until told; its owner is settled after a second.
script() { # CODE NAME
    start bash -c "$1"'; read -r _ <"$2"; :' _ "$MNT/$2" "$TEST_DIR/never"
    SCRIPT=$STARTED
    expect eventually 10 exists "$2"
}

it "the mount's ttl is what a lease gets"
says A 'acquire("ttl")' ok
expect_is "$(milliseconds "$(attribute ttl ttl)")" $TTL
expect_between 1 "$(remaining ttl)" $TTL

it "while its owner lives a lease is renewed: three TTLs"
says A 'acquire("alive")' ok
first=$(stat -c %.9Y "$MNT/alive")
expect constantly $((3 * TTL)) exists alive
expect_between 1 "$(remaining alive)" $TTL

it "mtime tells the last renewal, ctime when it was acquired"
last=$(stat -c %.9Y "$MNT/alive")
acquired=$(stat -c %.9Z "$MNT/alive")
expect awk -v a="$first" -v b="$last" 'BEGIN { exit !(b - a > 1) }'
expect awk -v a="$first" -v b="$acquired" 'BEGIN { exit !(b - a < 0.5 && a - b < 0.5) }'

it "user.lease.owner names the process that acquired: host, pid, uid, command"
expect_is "$(attribute alive owner)" "$(uname -n) ${actor_pid[A]} 0 python3*"

it "a parent that moves what a helper took, before it waits for it, owns that, also if the helper has failed"
start "$PYTHON" -c '
import os, subprocess, sys, time
helper = subprocess.Popen(["sh", "-c", "touch \"$1\"; exit 1", "_", sys.argv[1]])
os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)
os.rename(sys.argv[1], sys.argv[2])
helper.wait()
time.sleep(60)
' "$MNT/made" "$MNT/moved"
expect eventually 5 exists moved
expect constantly $((2 * TTL)) exists moved
expect_is "$(owner_pid moved)" "$STARTED"

it "a helper that has closed the file and exits hands the lease to its parent"
says A 'child("acquire(\"helper\")")' ok
expect eventually 2 eval '[ "$(owner_pid helper)" = "${actor_pid[A]}" ]'
expect constantly $((2 * TTL)) exists helper
says B 'rm("helper")' EPERM
says A 'rm("helper")' ok

it "touch in a script is kept for the script, and ends within one TTL of it"
script 'touch "$1"' touched
pause 1.3
expect_is "$(owner_pid touched)" "$SCRIPT"
expect constantly $TTL exists touched
left=$(remaining touched)
end_process "$SCRIPT"
expect_end touched "$left"

it "r=\$(touch L), (touch L), sh -c 'touch L', xargs touch in a script are kept for the script"
declare -A scripts=()
script 'r=$(touch "$1")' substituted && scripts[substituted]=$SCRIPT
script 'r=$(touch "$1"; echo done)' substituted2 && scripts[substituted2]=$SCRIPT
script '(touch "$1")' subshell && scripts[subshell]=$SCRIPT
script '(touch "$1"; :)' subshell2 && scripts[subshell2]=$SCRIPT
script 'sh -c "touch \"\$1\"" _ "$1"' shc && scripts[shc]=$SCRIPT
script 'sh -c "touch \"\$1\"; :" _ "$1"' shc2 && scripts[shc2]=$SCRIPT
script 'printf "%s\n" "$1" | xargs touch' xargs && scripts[xargs]=$SCRIPT
script 'ln -s target "$1"' link && scripts[link]=$SCRIPT
script '(set -C; : >"$1")' noclobber && scripts[noclobber]=$SCRIPT
pause 1.3
for name in "${!scripts[@]}"; do
    [ "$name" = link ] || expect_is "$(owner_pid "$name")" "${scripts[$name]}" "owner of $name"
done
all_there() {
    local name
    for name in "${!scripts[@]}"; do exists "$name" || { say "$name is gone"; return 1; }; done
}
all_gone() {
    local name
    for name in "${!scripts[@]}"; do absent "$name" || return 1; done
}
expect constantly $((2 * TTL)) all_there
for name in "${!scripts[@]}"; do end_process "${scripts[$name]}"; done
now
T=$NOW
expect eventually 6 all_gone
now
expect_between 0 $((NOW - T)) $((TTL + SLACK)) "milliseconds until all are gone"

it "a script 'touch L; sleep 3 TTL; rm L' keeps L all the time"
start bash -c 'touch "$1"; sleep 4.5; rm "$1"' _ "$MNT/work"
script=$STARTED
expect eventually 5 exists work
expect constantly 4000 exists work
wait "$script"
expect_is $? 0 "status of its rm"
expect absent work

it "such a script killed with -9, its parent alive: L is gone within one TTL, not before its deadline"
start bash -c 'touch "$1"; read -r _ <"$2"' _ "$MNT/killed" "$TEST_DIR/never"
script=$STARTED
expect eventually 5 exists killed
pause 1.5
left=$(remaining killed)
end_process "$script"
expect_end killed "$left"

it "a dead owner that nobody has reaped yet (a zombie) is dead"
says A 'z = fork("acquire(\"zombie\")")' ok
pause 1.3
expect exists zombie
left=$(remaining zombie)
says A 'kill(z)' ok
expect_end zombie "$left"
says A 'reap(z)' ok

it "after the first second the owner is settled: its parent does not inherit"
says A 'p = fork("acquire(\"settled\")")' ok
owner=$(ask A p)
expect constantly $((TTL + 200)) exists settled
expect_is "$(owner_pid settled)" "$owner"
left=$(remaining settled)
says A 'kill(p)' ok
says A 'reap(p)' ok
expect_end settled "$left"

it "a Python program that took L with open('x') and crashes later in an interactive shell does not leave L to the shell"
mkfifo "$TEST_DIR/keys"
(cd / && exec script -qec "bash --norc --noprofile -i" /dev/null <"$TEST_DIR/keys" >"$TEST_DIR/terminal" 2>&1) &
terminal=$!
started+=("$terminal")
exec {keys}>"$TEST_DIR/keys"
# shellcheck disable=SC2154
printf '%s -S -c "import time; f = open(\\"%s\\", \\"x\\"); time.sleep(2); raise SystemError"\n' \
    "$PYTHON" "$MNT/crash" >&"$keys"
expect eventually 10 exists crash
now
T=$NOW
expect eventually 15 absent crash
now
expect_between 1800 $((NOW - T)) $((2000 + TTL + SLACK + 1000)) "milliseconds that it was there"
expect kill -0 "$terminal"
printf 'touch %s\n' "$MNT/typed" >&"$keys"
expect eventually 5 exists typed
expect constantly $((TTL + 1000)) exists typed
printf 'exit\n' >&"$keys"
exec {keys}>&-
expect eventually 5 gone "$terminal"
expect eventually 4 absent typed

it "a handle that a descendant of the dead owner has open keeps the lease renewed"
says A 'o = fork("f = op(\"heirloom\", \"WRONLY|CREAT|EXCL\"); h = fork(\"pass\")")' ok
pause 1.3
owner=$(ask A o)
heir=$(pgrep -P "$owner" | head -1)
expect [ -n "$heir" ]
says A 'kill(o)' ok
says A 'reap(o)' ok
expect constantly $((2 * TTL)) exists heirloom
left=$(remaining heirloom)
kill -9 "$heir"
expect_end heirloom "$left"

it "the idle handle of a stranger does not keep a lease alive"
says A 'p = fork("acquire(\"stranger\")")' ok
pause 1.3
says B 's = op("stranger", "RDONLY")' ok
says A 'kill(p); reap(p)' ok
expect eventually 4 absent stranger
says B 'close(s)' ok

it "setting user.lease.ttl makes the term fixed although the owner lives"
says A 'acquire("fixed")' ok
now
T=$NOW
says A 'put("fixed", "ttl", "2s")' ok
expect_between 1500 "$(remaining fixed)" 2000
expect_is "$(milliseconds "$(attribute fixed ttl)")" 2000
expect eventually 6 absent fixed
now
expect_between 1980 $((NOW - T)) $((2000 + SLACK)) "milliseconds that it lasted"

it "setting it again renews; auto returns to automatic renewal"
says A 'acquire("again")' ok
says A 'put("again", "ttl", "800ms")' ok
for _ in {1..4}; do
    pause 0.4
    says A 'put("again", "ttl", "800ms")' ok
done
expect exists again
says A 'put("again", "ttl", "auto")' ok
expect constantly $((2 * TTL)) exists again
says A 'rm("again")' ok

it "a child may set the ttl of its ancestor's lease, another may not"
says A 'acquire("grant")' ok
says A 'child("put(\"grant\", \"ttl\", \"5s\")")' ok
expect_is "$(milliseconds "$(attribute grant ttl)")" 5000
says B 'put("grant", "ttl", "9s")' EPERM
expect_is "$(milliseconds "$(attribute grant ttl)")" 5000

it "a directory's ttl is the default for what is made in it"
says A 'os.mkdir(path("short"))' ok
says A 'put("short", "ttl", "4s")' ok
expect_is "$(milliseconds "$(attribute short ttl)")" 4000
says A 'acquire("short/l")' ok
expect_is "$(milliseconds "$(attribute short/l ttl)")" 4000
says A 'acquire("long")' ok
expect_is "$(milliseconds "$(attribute long ttl)")" $TTL

it "a child that stays when the taker exits keeps the lease, and may release it, also when nobody inherits"
stay='set -C; : >"$1"; { until [ -e "$2" ]; do sleep 0.1; done; rm "$1"; } </dev/null >/dev/null 2>&1 &'
setsid -f bash -c "$stay" _ "$MNT/stays" "$TEST_DIR/end"
expect eventually 5 exists stays
expect constantly $((3 * TTL)) exists stays
: >"$TEST_DIR/end"
expect eventually 1 absent stays

it "while an heir lives, too: the child is no stranger"
rm "$TEST_DIR/end"
script "bash -c '$stay' _ \"\$1\" \"$TEST_DIR/end\"" both
pause 1.3
expect_is "$(owner_pid both)" "$SCRIPT"
end_process "$SCRIPT"
expect constantly $((3 * TTL)) exists both
: >"$TEST_DIR/end"
expect eventually 1 absent both

if command -v sem >/dev/null; then
    it "sem in its background mode runs one command at a time"
    mkdir "$MNT/parallel" "$TEST_DIR/inside"
    export PARALLEL_HOME=$MNT/parallel
    for i in 1 2 3; do
        sem --id one "mkdir $TEST_DIR/inside/one || touch $TEST_DIR/two; sleep 0.3; rmdir $TEST_DIR/inside/one; echo $i >>$TEST_DIR/done" \
            2>>"$TEST_DIR/errors"
    done
    sem --wait --id one 2>>"$TEST_DIR/errors"
    expect eventually 5 eval '[ "$(wc -l <"$TEST_DIR/done")" = 3 ]'
    expect_not [ -e "$TEST_DIR/two" ]
    expect_not [ -s "$TEST_DIR/errors" ]
    expect eventually 5 absent parallel/semaphores/id-one
fi

it "TTLs from 100 ms to ten years are taken, anything else is EINVAL"
says A 'acquire("range")' ok
for value in 99ms 0 -1 -5s 315360001 87601h "" abc 5x "1 s" nan inf 1e3s s auto2; do
    says A "put('range', 'ttl', '$value')" EINVAL
done
for value in 315360000 87600h 1.5 1500ms 30s 5m 1h; do
    says A "put('range', 'ttl', '$value')" ok
done
says A 'put("range", "ttl", "100ms")' ok
expect eventually 3 absent range

it "the owner's write, times and close renew"
says A 'acquire("renewed")' ok
pause 0.3
before=$(attribute renewed remaining)
says A 'f = op("renewed"); write(f, "x")' ok
expect [ "$(remaining renewed)" -gt "$((TTL - 250))" ]
say "remaining was $before"

finish
