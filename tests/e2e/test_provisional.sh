#!/bin/bash
# The provisional second: what decides it, what does not, who waits for it and how long.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "while it runs, L is visible and refused to others"
says A 'f = op("seen")' ok
expect exists seen
says B 'acquire("seen")' EEXIST
says B 'ln("x", "seen")' EEXIST
says B 'rm("seen")' EPERM
says A 'close(f)' ok
says A 'rm("seen")' ok

it "a dup that is closed decides nothing: exec 9>L is open, dup2, close"
says A 'f = op("dup"); g = os.dup(f); os.close(f)' ok
expect exists dup
expect eventually 4 absent dup
says A 'get(g, "state")' free

it "closing the last duplicate is what acquires"
says A 'f = op("dup2"); g = os.dup(f); os.close(f)' ok
says A 'close(g)' ok
expect constantly 1300 exists dup2

it "a child that inherited the handle and closes it, or exits, decides nothing"
says A 'f = op("inherit")' ok
says A 'child("close(f)")' ok
says A 'child("pid()")' '[0-9]*'
expect eventually 4 absent inherit

it "exit without closing gives the provisional lease back"
says A 'child("op(\"exit\") and None")' ok
expect eventually 2 absent exit

it "death without closing gives the provisional lease back"
actor C
says C 'f = op("killed")' ok
expect exists killed
end_actor C
expect eventually 2 absent killed

it "another's write-open waits for the outcome, and is EBUSY when it became a lease"
says A 'f = op("wait-lease")' ok
tell B 'op("wait-lease")'
pause 0.3
says A 'close(f)' ok
expect_is "$(hear B 5)" EBUSY

it "another's write-open waits for the outcome, and goes on when it was given back"
now
T=$NOW
says A 'f = op("wait-lapse")' ok
says B 'g = op("wait-lapse")' ok
now
expect_between 900 $((NOW - T)) $((1000 + SLACK)) "milliseconds of waiting"
expect exists wait-lapse
says A 'get(f, "state") in ("free", "held")' True
says B 'close(g)' ok
expect constantly 1200 exists wait-lapse
says B 'rm("wait-lapse")' ok

it "another's write-open goes on at once when the provisional holder closes by dying"
actor C
says C 'f = op("wait-dead")' ok
tell B 'g = op("wait-dead")'
pause 0.2
end_actor C
expect_is "$(hear B 3)" ok
says B 'close(g)' ok
says B 'rm("wait-dead")' ok

it "the process's own further opens do not wait"
now
T=$NOW
says A 'f = op("own")' ok
says A 'g = op("own")' ok
says A 'h = op("own", "RDONLY")' ok
now
expect_between 0 $((NOW - T)) 700 "milliseconds for three opens"
says A 'write(g, "x")' ok
expect_is "$(cat "$MNT/own")" x

it "a wait for the outcome is interruptible: kill -9 ends the waiter at once"
says A 'f = op("interrupt")' ok
start bash -c 'exec 9>"$1"; sleep 60' _ "$MNT/interrupt"
pause 0.2
now
T=$NOW
disown "$STARTED" # bash need not tell that it was killed
kill -9 "$STARTED"
expect eventually 3 gone "$STARTED"
now
expect_between 0 $((NOW - T)) 600 "milliseconds to die"
says A 'close(f)' ok
says A 'rm("interrupt")' ok

it "after the provisional second has lapsed, an explicit close takes L if it is free"
says A 'f = op("late")' ok
expect eventually 4 absent late
says A 'close(f)' ok
expect exists late
expect_is "$(attribute late kind)" lease
expect constantly 1200 exists late

it "after the provisional second has lapsed, a write takes L if it is free, else is EBUSY"
says A 'f = op("late-write")' ok
expect eventually 4 absent late-write
says A 'write(f, "w")' ok
expect_is "$(cat "$MNT/late-write")" w
says A 'f = op("late-busy")' ok
expect eventually 4 absent late-busy
says B 'acquire("late-busy", "b")' ok
says A 'write(f, "a")' EBUSY
says A 'utime(f)' EBUSY
says A 'close(f)' EBUSY
says B 'content("late-busy")' b

it "who was refused does not hold the lock a moment later, by closing"
for way in 'utime(f)' 'utime("refused")' 'write(f, "x")' 'truncate(f, 1)' 'close(os.dup(f))'; do
    says A 'f = op("refused")' ok
    expect eventually 4 absent refused
    says B 'acquire("refused")' ok
    says A "$way" EBUSY
    says B 'rm("refused")' ok
    says A 'close(os.dup(f))' EBUSY
    says A 'close(f)' EBUSY
    expect constantly 100 absent refused
done

it "exec 9>L by a script that exits at once: L is not left held"
expect bash -c 'exec 9>"$1"; /bin/true' _ "$MNT/script0"
expect eventually 2 absent script0
expect constantly 1200 absent script0

it "exec 9>L by a script that runs commands for 2 s and exits: L is not left held"
now
T=$NOW
start bash -c 'exec 9>"$1"; /bin/true; sleep 2; /bin/true' _ "$MNT/script2"
script=$STARTED
expect eventually 5 exists script2
expect eventually 5 absent script2
now
expect_between 900 $((NOW - T)) $((1000 + SLACK)) "milliseconds that it was there"
expect eventually 10 gone "$script"
expect constantly 1200 absent script2

it "another's touch L meanwhile succeeds within about the provisional second"
start bash -c 'exec 9>"$1"; sleep 3' _ "$MNT/meanwhile"
expect eventually 5 exists meanwhile
now
T=$NOW
expect touch "$MNT/meanwhile"
now
expect_between 0 $((NOW - T)) $((1000 + SLACK)) "milliseconds that touch took"
end_process "$STARTED"
expect constantly 1200 exists meanwhile
expect rm "$MNT/meanwhile"

it "sixteen processes that open L for writing and never lock it all get on within the provisional second"
now
T=$NOW
pids=()
for i in {1..16}; do
    start bash -c 'exec 9>"$1" && : >"$2" && sleep 4' _ "$MNT/sixteen" "$TEST_DIR/on.$i"
    pids+=("$STARTED")
done
all_on() {
    local on=("$TEST_DIR"/on.*)
    [ "${#on[@]}" -eq 16 ]
}
expect eventually 20 all_on
now
expect_between 0 $((NOW - T)) $((1000 + SLACK)) "milliseconds until the last went on"
expect eventually 5 absent sixteen
for pid in "${pids[@]}"; do wait "$pid"; done
expect constantly 500 absent sixteen

it "a first writer among many idle ones gets the lease, the others are EBUSY"
says A 'f = op("many")' ok
says B 'g = op("many")' ok
expect eventually 4 absent many
says B 'write(g, "b")' ok
says A 'write(f, "a")' EBUSY
says A 'close(f)' EBUSY
expect_is "$(cat "$MNT/many")" b

it "who closes a file with success just when its provisional second ends holds the lease"
"${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/lapse" "$MNT" | sed 's/^/# /'
expect_is "${PIPESTATUS[0]}" 0 status

finish
