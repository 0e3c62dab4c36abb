#!/bin/bash
# run.sh: the end names what failed, with the first line that says why, and what was left out; nothing runs twice.
set -u
here=$(cd "${top_srcdir:-$(dirname "$0")/..}" && pwd)

# shellcheck source=checks.sh
. "$here/tests/checks.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
mkdir -p tests/unit tests/e2e
: >config.h
: >stamp-h1
# Makes the logs and results that automake makes of each test.
cat >Makefile <<'END'
TESTS = tests/unit/sound tests/unit/broken tests/unit/poor tests/e2e/mount.sh
check:
	@for test in $(TESTS); do \
		echo "$$test" >>ran; name=$${test%.sh}; \
		case $$test in \
		*/broken) printf '# unimportant\nok 1 - one\n# why it failed\n# more\nnot ok 2 - two\n1..2\n' >$$name.log; printf ':test-result: PASS\n:test-result: FAIL\n:test-result: ERROR\n' >$$name.trs ;; \
		*/poor) printf '# left out: three: would run on Linux 6.15\nok 1 - four # SKIP needs a program\n1..1\n' >$$name.log; echo ':test-result: SKIP' >$$name.trs ;; \
		*) printf 'ok 1 - one\n1..1\n' >$$name.log; echo ':test-result: PASS' >$$name.trs ;; \
		esac; \
	done; exit 1
END

# run [TEST…]: what it said, and its exit status.
run() {
    rm -f ran
    CI='' STRESS_PROGRAMS='' bash "$here/tests/run.sh" "$@" 2>&1 | grep -v '^limits of time: '
    echo "status ${PIPESTATUS[0]}"
}

expect_none "$(diff <(run tests/unit/sound tests/unit/broken tests/unit/poor) - <<END
failed: tests/unit/broken
    not ok 2 - two
      # why it failed
    repeat: make -C $PWD check TESTS=tests/unit/broken
left out: three: would run on Linux 6.15 (1)
skipped: needs a program (1)
2 passed, 1 failed, 1 skipped
status 1
END
)" "the end says what failed, why, how to repeat it, and what was left out"

run tests/unit/sound tests/unit/broken >said
expect_none "$(sort ran | uniq -d)" "what failed is not repeated"

expect_none "$(setpriv --reuid 65534 --clear-groups true 2>/dev/null || exit 0
    cp "$here/tests/run.sh" . # the sources may be below a directory of root's
    chmod -R a+rwX .
    said=$(rm -f ran; CI='' STRESS_PROGRAMS='' setpriv --reuid 65534 --clear-groups bash ./run.sh 2>&1)
    [[ $(head -n 1 <<<"$said") == "1 scripts on real mounts are left out: they need root"* ]] && ! grep -q mount.sh ran || echo "$said")" \
    "without root the scripts on mounts are left out, and the first line says so"
end_checks
