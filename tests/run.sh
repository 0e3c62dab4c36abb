#!/bin/bash
# run.sh [TEST…]: runs these tests, or all, in the build directory that it is started in, and repeats none.
#
# It ends with what failed (the first line that says why, and the command that repeats it), what was left out (and what
# would run it), and the line "N passed, N failed", with ", N skipped" if a case was skipped.
set -u
export LC_ALL=C

say() { printf '%s\n' "$*"; }

# The tests on real mounts need root, /dev/fuse and the right to mount.
lacking() {
    [ "$(id -u)" -eq 0 ] || echo root
    [ -c /dev/fuse ] || echo /dev/fuse
    [ "$(id -u)" -ne 0 ] || unshare --mount true 2>/dev/null || echo CAP_SYS_ADMIN
}

logs_of() { for test; do printf '%s.log\n' "${test%.[sp][hy]}"; done; }

# Prints the failed cases of a test, each with the first remark that a script of tests/e2e prints before it, or another one after.
report_failure() { # TEST LOG
    local why
    why=$(awk '
        /^ok / { said = ""; after = 0 }
        /^#/ { if (after) { print "  " $0; after = 0 } else if (said == "") said = $0 }
        /^Bail out/ { print }
        /^not ok / { print; after = said == ""; if (said != "") print "  " said; said = "" }' "$2" | head -n 20)
    say "failed: $1"
    say "${why:-$(tail -n 3 "$2")}" | sed 's/^/    /'
    say "    repeat: make -C $PWD check TESTS=$1"
}

# Prints how many percent of the time of two idle processors (300 ms) this machine takes now for the processes of so many
# tests at once: by so much the limits of time of the tests are longer.  At least 100.
measure_pace() { # TESTS-AT-ONCE
    local began=$EPOCHREALTIME i
    for ((i = 0; i < $1; i++)); do
        for _ in {1..100}; do /bin/true; done &
    done
    wait
    i=$(((${EPOCHREALTIME/[.,]/} - ${began/[.,]/}) / 3000))
    echo $((i < 100 ? 100 : i))
}

jobs=$((7 * $(nproc) / 2)) # one runs for a sixth of its time and waits for the rest of it: so seven leave half of two processors
programs=()
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # names without spaces
    set -- $(printf 'names: ; @echo $(TESTS)\n' | MAKEFLAGS='' make -s --no-print-directory -f Makefile -f - names)
fi
missing=$(lacking | paste -sd ' ')
if [ -n "$missing" ]; then
    tests=() left=0
    for test; do
        case $test in
        tests/e2e/* | tests/attack/*) left=$((left + 1)) ;;
        *) tests+=("$test") ;;
        esac
    done
    set -- "${tests[@]}"
    [ "$left" -eq 0 ] || say "$left scripts on real mounts are left out: they need $missing"
fi

pace=$(measure_pace "$jobs")
say "limits of time: $pace % of those of two idle processors"
export E2E_SLACK=${E2E_SLACK:-$((15 * pace))} CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-$(((pace + 99) / 100))}
for log in $(logs_of "$@"); do rm -f "$log" "${log%.log}.trs"; done
touch -r config.h stamp-h1 # else make remakes config.h, and begins the programs after the scripts
for test; do
    case $test in *.sh | *.py) ;; *) programs+=("$test") ;; esac
done
status=0
MAKEFLAGS='' make -k -j "$jobs" check TESTS="$*" check_PROGRAMS="${programs[*]} ${STRESS_PROGRAMS:-}" >run.log 2>&1 || status=$?

passed=0 failed=0 skipped=0
for test; do
    log=$(logs_of "$test")
    if [ ! -e "${log%.log}.trs" ]; then
        say "failed: $test: it did not run: see $PWD/run.log"
        failed=$((failed + 1))
        continue
    fi
    read -r p f s < <(awk '$1 != ":test-result:" { next } $2 == "PASS" || $2 == "XFAIL" { p++; next } $2 == "SKIP" { s++; next }
        $2 == "ERROR" { e++; next } { f++ } END { print p + 0, f ? f : e + 0, s + 0 }' "${log%.log}.trs")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" -eq 0 ] || report_failure "$test" "$log"
done
# shellcheck disable=SC2046
sed -nE 's/^ok .*# SKIP /skipped: /p; s/^1\.\.0 # SKIP /skipped: /p; s/^# left out: /left out: /p' $(ls $(logs_of "$@") 2>/dev/null) | sort | uniq -c |
    sed -E 's/^ *([0-9]+) (.*)/\2 (\1)/'
[ -z "$missing" ] || [ "$left" -eq 0 ] || say "left out: $left scripts on real mounts: would run with $missing"
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
    say "make check ended with status $status: see $PWD/run.log"
    failed=1
fi
if [ -n "${CI:-}" ] && [ "$skipped" -gt 0 ]; then
    say "$skipped skipped, which is a failure when CI is set"
    status=1
fi
[ "$skipped" -eq 0 ] && skips='' || skips=", $skipped skipped"
say "$passed passed, $failed failed$skips"
[ "$failed" -eq 0 ] && [ "$status" -eq 0 ]
