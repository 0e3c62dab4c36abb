#!/bin/bash
# Sequence files: numbers, what a ticket shows, how long it lives, whose turn it is, and the attributes of the directory.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

UUTILS_TOUCH=
for candidate in /usr/lib/cargo/bin/coreutils/touch /usr/lib/cargo/bin/touch; do
    [ -x "$candidate" ] && UUTILS_TOUCH=$candidate && break
done

ticket() { printf '%s-%010d' "$1" "$2"; }
# The names in a directory, in the order in which the file system lists them.
queue() { ls -U "$MNT/$1" | paste -sd ' '; }
position() { attribute "$1" position; }
waiters_are() { [ "$(attribute "$1" waiters)" = "$2" ]; }
# NAME takes a place in a directory's queue: the handle is `a`, the name `me`.
take() { # NAME DIRECTORY
    says "$1" "a = op('$2/job-', 'RDWR|CREAT'); me = '$2/' + read(a).strip()" ok
}
# NAME leaves the queue.
leave() { says "$1" 'rm(me); os.close(a)' ok; }
# NAME waits for its turn, and is not served in that many seconds.
silent() { expect_is "$(hear "$1" "$2")" TIMEOUT "answer of $1"; }

mount_memory allow_other
mkdir "$MNT/q"
actor A
actor B
actor C

# --- numbers ---

number=0
numbered() { # PREFIX COMMAND…: the command makes the next ticket of q, whose content is its name
    local name
    name=q/$(ticket "$1" "$number")
    shift
    expect "$@"
    expect exists "$name"
    [ -L "$MNT/$name" ] || expect_is "$(cat "$MNT/$name")" "${name#q/}" content
    number=$((number + 1))
}

it "a name that ends in '-' becomes a numbered ticket, by every call that creates"
numbered job bash -c '>"$1"' _ "$MNT/q/job-"
numbered job bash -c 'set -C; >"$1"' _ "$MNT/q/job-"
numbered job bash -c ': >>"$1"' _ "$MNT/q/job-"
numbered job bash -c ': <>"$1"' _ "$MNT/q/job-"
numbered job touch "$MNT/q/job-"
numbered job touch "$MNT/q/job-"
numbered job busybox touch "$MNT/q/job-"
numbered job "$PYTHON" -c 'import sys; open(sys.argv[1], "x").close()' "$MNT/q/job-"
numbered job "$PYTHON" -c 'import sys; open(sys.argv[1], "w").close()' "$MNT/q/job-"
numbered job "$PYTHON" -c 'import sys; open(sys.argv[1], "a").close()' "$MNT/q/job-"
numbered job "$PYTHON" -c 'import pathlib, sys; pathlib.Path(sys.argv[1]).touch()' "$MNT/q/job-"
numbered job "$PYTHON" -c 'import pathlib, sys; pathlib.Path(sys.argv[1]).touch(exist_ok=False)' "$MNT/q/job-"
numbered link ln -s target "$MNT/q/link-"
numbered other touch "$MNT/q/other-"
numbered "" touch "$MNT/q/-"
expect_is "$(readlink "$MNT/q/$(ticket link $((number - 3)))")" target

if [ -n "$UUTILS_TOUCH" ]; then
    it "uutils touch makes one ticket"
    numbered job "$UUTILS_TOUCH" "$MNT/q/job-"
else
    say "no rust-coreutils: uutils touch is not tried"
fi

it "a name that ends in '-' is always free for a look-up"
expect absent q/job-
expect_not stat "$MNT/q/job-" 2>/dev/null
expect_not cat "$MNT/q/job-" 2>/dev/null
expect_not rm "$MNT/q/job-" 2>/dev/null

it "mkdir of a name that ends in '-' is EINVAL"
says A 'os.mkdir(path("q/job-"))' EINVAL

it "ls shows the queue in order, and no ticket is missing"
expect_is "$(ls -U "$MNT/q" | sort -t- -k2 | sed 's/.*-//' | paste -sd ' ')" \
    "$(seq -f %010g 0 $((number - 1)) | paste -sd ' ')"
expect_is "$(ls -U "$MNT/q" | sed -n '/^job-/p')" "$(ls "$MNT/q" | sed -n '/^job-/p')"
expect [ "$(ls "$MNT/q" | wc -l)" -eq "$number" ]

it "a name is never used again: not after rm, nor after the last ticket is gone"
rm "$MNT/q/$(ls -U "$MNT/q" | tail -1)" || fail rm
numbered job touch "$MNT/q/job-"
rm "$MNT"/q/*-*
expect_is "$(queue q)" ""
numbered job touch "$MNT/q/job-"

it "each directory has numbers of its own"
mkdir "$MNT/q2"
expect touch "$MNT/q2/job-"
expect_is "$(queue q2)" "$(ticket job 0)"
rm "$MNT"/q/*-*

it "numbers grow across a crash of the daemon and a restart, with and without tickets that survive"
memory=$MNT
mkdir -m 700 "$TEST_DIR/store"
mount_local "$TEST_DIR/store" ${E2E_STORE:+ttl=2} # what is gone with the daemon ends in a server with its term
point=$MNT
again() { crash "$point" && mount_at "$point" "$BACKEND" ""; }
mkdir "$MNT/q" "$MNT/empty"
touch "$MNT/q/job-" "$MNT/q/job-" "$MNT/empty/job-"
rm "$MNT/empty/job-0000000000"
exec {fd}<>"$MNT/q/job-"
expect exists q/job-0000000002
again
exec {fd}>&-
expect eventually 6 absent q/job-0000000002
expect_is "$(queue q)" "job-0000000000 job-0000000001"
expect_is "$(cat "$MNT/q/job-0000000001")" job-0000000001
expect_is "$(position q/job-0000000001)" 1
expect touch "$MNT/q/job-" "$MNT/empty/job-"
third=$(ls "$MNT/q" | tail -1) only=$(ls "$MNT/empty")
expect [ "$(ls "$MNT/q" | wc -l)" -eq 3 ]
expect [ "$third" '>' job-0000000002 ]
expect [ "$only" '>' job-0000000000 ]
rm "$MNT/empty/$only"
again
expect touch "$MNT/q/job-" "$MNT/empty/job-"
expect [ "$(ls "$MNT/q" | wc -l)" -eq 4 ]
expect [ "$(ls "$MNT/q" | tail -1)" '>' "$third" ]
expect [ "$(ls "$MNT/empty")" '>' "$only" ]
unmount "$MNT"
MNT=$memory

# --- what it shows ---

it "a ticket has a kind, a name, a position, a state and a fencing token; the directory counts who waits"
mkdir "$MNT/show"
for name in A B C; do take $name show; done
first=show/job-0000000000 second=show/job-0000000001 third=show/job-0000000002
for name in $first $second $third; do
    expect_is "$(attribute "$name" kind)" ticket
    expect_is "$(attribute "$name" name)" "${name#show/}"
done
expect_is "$(position $first),$(position $second),$(position $third)" 0,1,2
expect_is "$(attribute $first state),$(attribute $second state),$(attribute $third state)" held,waiting,waiting
expect_is "$(attribute $second owner)" "* ${actor_pid[B]} 0 *"
expect_is "$(attribute show width),$(attribute show waiters)" 1,2
expect [ "$(attribute $first token)" -lt "$(attribute $second token)" ]
expect [ "$(attribute $second token)" -lt "$(attribute $third token)" ]
says B 'get(a, "name"), get(a, "position"), get(a, "state")' "('job-0000000001', '1', 'waiting')"

it "the attributes of a ticket and of the queue are read-only"
says A 'put(me, "position", 0)' EPERM
says A 'put(me, "name", "x")' EPERM
says A 'put("show", "waiters", 0)' EPERM

it "rm by a stranger is EPERM, root included, whether the ticket holds or waits"
says A "rm('$second')" EPERM
says B "rm('$first')" EPERM
expect_not rm -f "$MNT/$first" 2>/dev/null
expect_is "$(queue show)" "${first#*/} ${second#*/} ${third#*/}"

it "rm of a ticket that waits leaves the queue: those behind it move up, nobody's turn has come"
says B 'rm(me)' ok
expect absent $second
expect_is "$(position $third),$(attribute $third state),$(attribute show waiters)" 1,waiting,1
says B 'os.close(a)' ok

it "rm of the ticket that holds hands on"
says A 'rm(me)' ok
expect_is "$(position $third),$(attribute $third state),$(attribute show waiters)" 0,held,0
says A 'os.close(a)' ok
leave C
expect_is "$(queue show)" ""

# --- how long it lives ---

it "held by its handle: longer than the provisional second, gone with the last close"
take A show
says A 'flock(a, "EX|NB"); d = os.dup(a); os.close(a)' ok
expect constantly 1200 exists show/job-0000000003
says A 'os.close(d)' ok
expect eventually 2 absent show/job-0000000003

it "held by its handle: gone when its process is killed, holding or waiting"
actor D
actor E
take D show
says D 'flock(a, "EX|NB")' ok
take E show
tell E 'flock(a, "EX")'
take A show
end_actor E
expect eventually 2 absent show/job-0000000005
expect_is "$(position show/job-0000000006)" 1
end_actor D
expect eventually 2 absent show/job-0000000004
expect_is "$(attribute show/job-0000000006 state)" held
says A 'flock(a, "EX|NB"); os.close(a)' ok
expect eventually 2 absent show/job-0000000006

it "a shell's ticket goes with the shell, and an inherited one with its last holder"
start bash -c 'exec 9<>"$1/job-"; flock 9; : >"$2"; exec sleep 60' _ "$MNT/show" "$TEST_DIR/in"
expect eventually 5 [ -e "$TEST_DIR/in" ]
expect_is "$(queue show)" job-0000000007
end_process "$STARTED"
expect eventually 2 absent show/job-0000000007

it "closed without asking for a lock it stays as a lease, renewed while its owner lives, and runs out after its death"
mkdir "$MNT/lease"
expect setfattr -n user.lease.ttl -v 1s "$MNT/lease"
actor D
says D 'os.close(op("lease/job-"))' ok
expect_is "$(attribute lease/job-0000000000 kind),$(attribute lease/job-0000000000 state)" ticket,held
expect constantly 2500 exists lease/job-0000000000
end_actor D
expect exists lease/job-0000000000
expect eventually $((1 + SLACK / 1000 + 1)) absent lease/job-0000000000

it "a ticket that waits as a lease runs out too when its owner is dead, and stalls nobody"
take A lease
actor D
says D 'os.close(op("lease/job-"))' ok
take B lease
pause 1.1
end_actor D
leave A
says B 'flock(a, "EX")' ok # one TTL after the death at most
expect absent lease/job-0000000002
says B 'os.close(a)' ok

it "flock through another handle of one's own lease waits for its turn, and does not end it"
take B lease
says A 'os.close(op("lease/job-"))' ok
mine=$(ls "$MNT/lease" | tail -1)
says A "b = op('lease/$mine', 'RDONLY'); flock(b, 'EX|NB')" EAGAIN
tell A 'flock(b, "EX")'
silent A 0.1
leave B
expect_is "$(hear A)" ok
says A 'os.close(b)' ok
expect constantly 200 exists "lease/$mine"
says A "rm('lease/$mine')" ok

# --- turns ---

it "flock on a ticket waits for its turn, whoever asks first"
mkdir "$MNT/turn"
for name in A B C; do take $name turn; done
tell C 'flock(a, "EX")'
tell B 'flock(a, "EX")'
says A 'flock(a, "EX"); os.close(a)' ok
expect_is "$(hear B)" ok
expect_is "$(attribute turn/job-0000000002 state)" waiting
silent C 0.1
says B 'os.close(a)' ok
expect_is "$(hear C)" ok

it "flock with LOCK_NB tells, and keeps the place"
take A turn
says C 'flock(a, "EX|NB")' ok
says A 'flock(a, "EX|NB")' EAGAIN
expect_is "$(position turn/job-0000000003)" 1

it "flock -n and -w give up in time, and keep the place"
exec {fd}<>"$MNT/turn/job-"
expect_not flock -n "$fd"
now
T=$NOW
expect_not flock -w 0.5 "$fd"
now
expect_between 450 $((NOW - T)) $((500 + SLACK)) "milliseconds of -w 0.5"
expect_is "$(position turn/job-0000000004)" 2
exec {fd}>&-
expect eventually 2 absent turn/job-0000000004

it "a signal ends the wait at once: EINTR, and the place is kept"
tell A 'flock(a, "EX")'
silent A 0.2 # it waits
kill -USR1 "${actor_pid[A]}"
expect_is "$(hear A)" EINTR
expect_is "$(position turn/job-0000000003),$(attribute turn/job-0000000003 state)" 1,waiting

it "Ctrl-C ends a script that waits; its place is free, the others go on"
start env --default-signal=INT setsid \
    bash -c 'exec 9<>"$1/job-"; read -r me <&9; echo "$$ $me" >"$2"; flock 9' _ "$MNT/turn" "$TEST_DIR/group"
expect eventually 5 [ -s "$TEST_DIR/group" ]
read -r group waits <"$TEST_DIR/group"
take B turn
expect_is "$(position "turn/$waits")" 2
says B 'get(a, "position")' 3
kill -INT -- "-$group"
expect eventually 2 absent "turn/$waits"
expect eventually 2 gone "$group"
says B 'get(a, "position")' 2
for name in C A B; do says $name 'flock(a, "EX"); os.close(a)' ok; done
queue_is_empty() { [ -z "$(queue "$1")" ]; }
expect eventually 2 queue_is_empty turn

it "LOCK_UN gives the place back"
take A turn
take B turn
says A 'flock(a, "EX|NB"); flock(a, "UN")' ok
says B 'flock(a, "EX|NB"); os.close(a)' ok
says A 'os.close(a)' ok

it "rm of one's ticket ends one's own wait for it"
take A turn
start bash -c 'exec 9<>"$1/job-"; read -r me <&9; (flock 9 2>"$2.err"; echo $? >"$2.status") & echo "$me" >"$2"
    read -r; rm "$1/$me"; wait' _ "$MNT/turn" "$TEST_DIR/leaves" < <(pause 0.3; echo)
expect eventually 10 [ -s "$TEST_DIR/leaves.status" ]
expect_re "$(cat "$TEST_DIR/leaves.status")" '^[1-9]' "status of flock"
expect absent "turn/$(cat "$TEST_DIR/leaves")"
leave A

it "a ticket that leaves wakes exactly whose turn has come"
actor D
for name in A B C D; do take $name turn; done
for name in B C D; do tell $name 'flock(a, "EX")'; done
middle=$(ls "$MNT/turn" | sed -n 3p)
expect setfattr -n user.lease.break -v 1 "$MNT/turn/$middle"
expect_is "$(hear C)" ESTALE
silent B 0.2
silent D 0.1
leave A
expect_is "$(hear B)" ok
silent D 0.2
says B 'os.close(a)' ok
expect_is "$(hear D)" ok
says D 'os.close(a)' ok
says C 'os.close(a)' ok
expect_is "$(queue turn)" ""

watched() {
    start inotifywait -e delete_self -t 20 "$MNT/$1"
}
if command -v inotifywait >/dev/null; then
    it "inotifywait -e delete_self on the predecessor fires when it leaves, not before"
    for name in A B C; do take $name turn; done
    first=$(ls "$MNT/turn" | sed -n 1p) second=$(ls "$MNT/turn" | sed -n 2p)
    watched "turn/$first" >"$TEST_DIR/first.out" 2>"$TEST_DIR/first.err"
    watches_first=$STARTED
    watched "turn/$second" >"$TEST_DIR/second.out" 2>"$TEST_DIR/second.err"
    watches_second=$STARTED
    expect eventually 10 grep -q established "$TEST_DIR/first.err"
    expect eventually 10 grep -q established "$TEST_DIR/second.err"
    leave A
    expect eventually 5 gone "$watches_first"
    expect_is "$(cat "$TEST_DIR/first.out")" "*DELETE_SELF*"
    expect_not gone "$watches_second"
    says B 'flock(a, "EX|NB"); os.close(a)' ok # by close
    expect eventually 5 gone "$watches_second"
    expect_is "$(cat "$TEST_DIR/second.out")" "*DELETE_SELF*"
    leave C
else
    skip "inotifywait -e delete_self on the predecessor fires when it leaves, not before" "no inotifywait"
fi

# --- shared ---

it "asked with flock -s, a ticket holds when only shared ones stand before it"
mkdir "$MNT/rw"
for name in A B C D; do take $name rw; done
says A 'flock(a, "SH|NB")' ok
says B 'flock(a, "SH|NB")' ok
expect_is "$(attribute rw/job-0000000001 mode),$(attribute rw/job-0000000001 state)" shared,held
says B 'flock(a, "EX|NB")' EAGAIN # another holds, too; it holds on as it did
says B 'flock(a, "EX")' EDEADLK
expect_is "$(attribute rw/job-0000000001 mode),$(attribute rw/job-0000000001 state)" shared,held
says C 'flock(a, "EX|NB")' EAGAIN
says D 'flock(a, "SH|NB")' EAGAIN # behind one that is exclusive: a fair lock
tell C 'flock(a, "EX")'
tell D 'flock(a, "SH")'
says A 'os.close(a)' ok
silent C 0.2
says B 'os.close(a)' ok
expect_is "$(hear C)" ok
silent D 0.2
says C 'os.close(a)' ok
expect_is "$(hear D)" ok
says D 'os.close(a)' ok

it "an exclusive one that leaves lets all shared ones behind it in at once"
for name in A B C D; do take $name rw; done
for name in B C D; do tell $name 'flock(a, "SH")'; done
says A 'flock(a, "EX|NB"); os.close(a)' ok
for name in B C D; do expect_is "$(hear $name)" ok; done
for name in B C D; do says $name 'os.close(a)' ok; done

# --- width ---

it "a directory of width 3 grants three; grown to 5, two more at once"
mkdir "$MNT/wide"
expect setfattr -n user.lease.width -v 3 "$MNT/wide"
expect_is "$(attribute wide width)" 3
actor E
actor F
for name in A B C D E F; do take $name wide; done
for name in A B C; do says $name 'flock(a, "EX|NB")' ok; done
for name in D E F; do tell $name 'flock(a, "EX")'; done
silent D 0.2
expect_is "$(attribute wide waiters)" 3
expect setfattr -n user.lease.width -v 5 "$MNT/wide"
expect_is "$(hear D)" ok
expect_is "$(hear E)" ok
silent F 0.2

it "shrunk, it lets the excess finish, and grants when fewer than the width stand before"
expect setfattr -n user.lease.width -v 2 "$MNT/wide"
for name in A B C D E; do says $name 'get(a, "state")' held; done
for name in A B C; do says $name 'os.close(a)' ok; done
silent F 0.2
says D 'os.close(a)' ok
expect_is "$(hear F)" ok
for name in E F; do says $name 'os.close(a)' ok; done

# --- attributes of the directory ---

it "a bad width, ttl or delay is EINVAL and changes nothing"
for value in 0 -1 x '' 4294967296 1.5 '3 '; do says A "put('wide', 'width', '$value')" EINVAL; done
for value in x -1 1ms 11y '' 0; do says A "put('wide', 'ttl', '$value')" EINVAL; done
for value in x -1s 1ms 100000000h; do says A "put('wide', 'delay', '$value')" EINVAL; done
expect_is "$(attribute wide width),$(attribute wide delay),$(attribute wide ttl)" 2,0,30

it "a directory's width, ttl and delay are for its owner: EPERM for others"
actor U setpriv --reuid=65534 --regid=65534 --clear-groups
says U 'put("wide", "width", 9)' 'E@(PERM|ACCES)'
says U 'put("wide", "ttl", "5s")' 'E@(PERM|ACCES)'
says U 'put("wide", "delay", "5s")' 'E@(PERM|ACCES)'
mkdir -m 777 "$MNT/public"
says U 'put("public", "width", 9)' EPERM
says U 'put("public", "ttl", "5s")' EPERM
says U 'put("public", "delay", "5s")' EPERM
expect_is "$(attribute public width),$(attribute public delay),$(attribute public ttl)" 1,0,30
says U 'os.mkdir(path("public/mine")); put("public/mine", "width", 9)' ok
expect_is "$(attribute public/mine width)" 9
expect_is "$(attribute wide width)" 2

it "a directory's ttl is inherited by what is made in it: locks, tickets and sub-directories made later"
mkdir -p "$MNT/ttl/before"
expect setfattr -n user.lease.ttl -v 7s "$MNT/ttl"
mkdir -p "$MNT/ttl/after/deep"
touch "$MNT/ttl/lock" "$MNT/ttl/job-" "$MNT/ttl/after/deep/lock" "$MNT/ttl/after/deep/job-"
for name in ttl ttl/after ttl/after/deep ttl/lock ttl/job-0000000000 ttl/after/deep/lock ttl/after/deep/job-0000000000; do
    expect_is "$(attribute $name ttl)" 7 "$name"
done
expect setfattr -n user.lease.ttl -v 9s "$MNT/ttl/after"
mkdir "$MNT/ttl/after/later"
expect_is "$(attribute ttl/after/later ttl),$(attribute ttl ttl)" 9,7

# --- lock-delay ---

it "user.lease.delay: after a holder was lost the name is refused that long"
mkdir "$MNT/delay"
expect setfattr -n user.lease.delay -v 1s "$MNT/delay"
now
T=$NOW # before its term began
says A 'acquire("delay/l"); put("delay/l", "ttl", "300ms")' ok
expect eventually 3 absent delay/l
says B 'acquire("delay/l")' EEXIST
says B 'b = op("delay/l", "RDONLY|CREAT"); flock(b, "EX|NB")' EAGAIN
says B 'flock(b, "EX"); os.close(b)' ok
now
expect_between 1290 $((NOW - T)) $((1300 + SLACK)) "milliseconds until it is free"

it "and the next ticket waits that long"
now
T=$NOW
says A 'os.close(op("delay/job-")); put("delay/job-0000000000", "ttl", "300ms")' ok
take B delay
tell B 'flock(a, "EX")'
expect eventually 3 absent delay/job-0000000000
expect_is "$(hear B)" ok
now
expect_between 1290 $((NOW - T)) $((1300 + SLACK)) "milliseconds until it is free"

it "after a clean release there is no delay"
take C delay
says B 'os.close(a)' ok
says C 'flock(a, "EX|NB")' ok
leave C
for round in 1 2 3; do says A 'acquire("delay/l"); rm("delay/l")' ok; done
expect_is "$(queue delay)" ""
: "$round"

finish
