#!/bin/sh
# make mutants works: tests kill some of a few mutants of a room that has a quick test.  So few say
# nothing of the tests.
set -eu
cd "${top_builddir:-.}"
top_srcdir=${top_srcdir:-$(dirname "$0")/..}

# shellcheck source=checks.sh
. "$top_srcdir/tests/checks.sh"

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}
unshare --pid --fork --mount-proc true 2>/dev/null || skip "processes cannot be kept apart"
git -c safe.directory='*' -C "$top_srcdir" ls-files >/dev/null 2>&1 || skip "no repository"
found=$(MAKEFLAGS='' make -s --no-print-directory mutants MUTANTS=6 MUTANTS_FLAGS='--quick --room fs/options' 2>&1 || true)
killed=$(echo "$found" | sed -n 's/^6 mutants: \([0-9]*\) killed, .*/\1/p')
expect_none "$([ "${killed:-0}" -ge 2 ] || echo "$found")" "two or more of six mutants of the options are killed"
end_checks
