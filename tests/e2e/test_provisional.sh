#!/bin/bash
# The provisional second: what decides it, what does not, who waits for it and how long.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "a dup that is closed decides nothing: exec 9>L is open, dup2, close"
says A 'f = op("dup"); g = os.dup(f); os.close(f)' ok
expect exists dup
expect eventually 4 absent dup
says A 'get(g, "state")' free

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

it "who closes a file with success just when its provisional second ends holds the lease"
"${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/lapse" "$MNT" | sed 's/^/# /'
expect_is "${PIPESTATUS[0]}" 0 status

finish
