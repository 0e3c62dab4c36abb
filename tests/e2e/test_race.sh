#!/bin/bash
# Racing tools: fifty rounds of twenty contenders, each tool alone and all mixed, as children
# of one `xargs -P20`: exactly one wins each round.
#
# The contenders wait at a gate (a FIFO) so that they start together.  A winner is
# one that ends without a word; every loser complains, as these tools do when
# they fail, and xargs tells that some failed.
E2E_LIMIT=${E2E_LIMIT:-600} # some of the tools start slowly, and there are eight thousand starts
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

ROUNDS=${E2E_ROUNDS:-50}
RACERS=20
GNU_TOUCH=/usr/bin/touch
UUTILS_TOUCH=
for candidate in /usr/lib/cargo/bin/coreutils/touch /usr/lib/cargo/bin/touch; do
    [ -x "$candidate" ] && UUTILS_TOUCH=$candidate && break
done
READY=$TEST_DIR/ready GATE=$TEST_DIR/gate RACER=$E2E_DIR/racer
export GNU_TOUCH UUTILS_TOUCH PYTHON RACER READY GATE
mkfifo "$READY" "$GATE"
exec {ready}<>"$READY"
mkdir "$TEST_DIR/said"

mount_memory

# race LOCK TOOL…: one round; the tools take turns among the contenders.  Sets WINNERS, and TOOK in milliseconds.
race() {
    local lock=$1 i xargs said
    shift
    local tools=("$@")
    rm -f "$TEST_DIR"/said/*
    for ((i = 0; i < RACERS; i++)); do
        printf '%s\n' "${tools[i % ${#tools[@]}]} $lock $TEST_DIR/said/$i"
    done >"$TEST_DIR/list"
    xargs -P "$RACERS" -L 1 sh -c 'exec "$RACER" "$1" "$2" "$READY" "$GATE" >"$3" 2>&1' sh <"$TEST_DIR/list" &
    xargs=$!
    started+=("$xargs")
    for ((i = 0; i < RACERS; i++)); do
        read -r -t 30 _ <&"$ready" || { say "only $i contenders came to the gate"; break; }
    done
    now
    TOOK=$NOW
    exec {gate}<>"$GATE" # opens the gate, and leaves it open for who has not come to it yet
    wait "$xargs"
    STATUS=$?
    exec {gate}>&-
    now
    TOOK=$((NOW - TOOK))
    WINNERS=0
    for ((i = 0; i < RACERS; i++)); do
        said=$TEST_DIR/said/$i
        [ -e "$said" ] && ! [ -s "$said" ] && { WINNERS=$((WINNERS + 1)); WINNER=${tools[i % ${#tools[@]}]}; }
    done
    return 0
}

# uutils' touch fails only if its open fails, and the open is refused only in the first second of another's lease.  So a
# round that took longer may have several winners: for each of them touch succeeded, but only one has the lock.
may_have_several() { [ "$WINNERS" -gt 1 ] && [ "$TOOK" -ge 1000 ] && [[ " $* " == *" uutils "* ]]; } # TOOL…

rounds() { # NAME TOOL…
    local name=$1 round start wins=
    shift
    now
    start=$NOW
    for ((round = 1; round <= ROUNDS; round++)); do
        while race "$MNT/$name$round" "$@" && may_have_several "$@" && rm -f "$MNT/$name$round"; do
            say "round $round took $TOOK ms and had $WINNERS winners: once more"
        done
        if [ "$WINNERS" -eq 1 ] && [ "$STATUS" -eq 123 ] && exists "$name$round"; then
            pass
            wins="$wins $WINNER"
        else
            fail "round $round: $WINNERS winners, xargs ended with $STATUS, $(exists "$name$round" && echo held || echo free)"
            head -3 "$TEST_DIR"/said/* | sed 's/^/# /' | head -70
        fi
        rm -f "$MNT/$name$round" || fail "round $round: the script's rm failed"
    done
    now
    [ $# -eq 1 ] || say "won by: $(tr ' ' '\n' <<<"${wins# }" | sort | uniq -c | tr -s ' \n' ' ')"
    say "$ROUNDS rounds of $RACERS in $((NOW - start)) ms"
}

tools=(gnu busybox python-open python-touch python-touch-ok noclobber noclobber-bash ln)
[ -z "$UUTILS_TOUCH" ] || tools=(gnu uutils "${tools[@]:1}")

it "GNU touch: exactly one wins each round"
rounds gnu gnu
it "busybox touch: exactly one wins each round"
rounds busybox busybox
if [ -n "$UUTILS_TOUCH" ]; then
    it "uutils touch: exactly one wins each round"
    rounds uutils uutils
else
    skip "uutils touch: exactly one wins each round" "no rust-coreutils"
fi
it "Python open(x): exactly one wins each round"
rounds popen python-open
it "Python Path.touch(): exactly one wins each round"
rounds ptouch python-touch-ok
it "set -C; >L: exactly one wins each round, in dash and in bash"
rounds noclobber noclobber noclobber-bash
it "ln -s: exactly one wins each round"
rounds ln ln
it "all tools mixed: exactly one wins each round"
rounds mixed "${tools[@]}"

finish
