# shellcheck shell=bash
# leaserun.sh: for the tests of leaserun(1).  Sourced after lib.sh.

LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun}
[ -x "$LEASERUN" ] || skip_all "no leaserun beside $LEASEFS: set LEASERUN"
OUT=$TEST_DIR/out

# run ARGUMENT…: STATUS, and what it said in $OUT.
run() {
    STATUS=0
    "$LEASERUN" "$@" >"$OUT" 2>&1 </dev/null || STATUS=$?
}
gives() { # STATUS ARGUMENT…
    local expected=$1
    shift
    run "$@"
    expect_is "$STATUS" "$expected" "status of leaserun $*"
}
said() { expect grep -qE -- "$1" "$OUT"; }

# begin ARGUMENT…: in the background; its pid is RUNNER.
begin() {
    "$LEASERUN" "$@" >"$OUT.bg" 2>&1 </dev/null &
    RUNNER=$!
    started+=("$RUNNER")
}
# ended STATUS: the one in the background has ended so.
ended() {
    local status=0
    expect eventually 20 gone "$RUNNER"
    { wait "$RUNNER" || status=$?; } 2>/dev/null
    expect_is "$status" "$1" "status of leaserun in the background"
}
# A file that the command makes when it runs, with its pid.
mark() { [ -s "$TEST_DIR/$1" ]; }
pid_of() { cat "$TEST_DIR/$1"; }
