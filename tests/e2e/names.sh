# shellcheck shell=bash
# names.sh: names that come and go all the time under the hands of several users.  Sourced after lib.sh:
#
#     names_come_and_go "a description" MOUNTPOINT… [-- OPTION…]
#
# is one case: see tests/stress/names.c, which is run as root for three users in these mounts of one store.
#
# Environment: STRESS_OPENS, opens and looks in each case (2000; 100,000 with E2E_FULL); STRESS_SEED;
# STRESS_PROGRAMS, the directory of the programs (default: tests/stress of the build directory).

OPENS=${STRESS_OPENS:-${E2E_FULL:+100000}}
OPENS=${OPENS:-2000}
SEED=${STRESS_SEED:-$((SRANDOM % 1000000))}
PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/names
[ -x "$PROGRAM" ] || skip_all "no program names: make check builds it, or set STRESS_PROGRAMS"
NAMES_USERS=(--users 64101,64102,64103)
NAMES_AS=() # the user who runs it

names_come_and_go() {
    it "names that come and go $1: no EACCES, no ESTALE, and no mode that nobody set"
    shift
    "${NAMES_AS[@]}" "$PROGRAM" --opens "$OPENS" --seed "$SEED" "${NAMES_USERS[@]}" "$@" >"$TEST_DIR/names"
    expect_is $? 0 "exit status"
    sed 's/^/# /' "$TEST_DIR/names"
}
