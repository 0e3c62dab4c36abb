#!/bin/sh
# Every source and test is listed in Makefile.am, so that it is built, run and distributed: a file that is only in the
# checkout is missing for everybody else.  And the archive of make dist has every file of the repository.
set -eu
export LC_ALL=C
cd "${top_srcdir:-$(dirname "$0")/..}"

# shellcheck source=checks.sh
. tests/checks.sh

# Files for git alone.
excluded='^\.gitignore$'

known() { git -c safe.directory='*' ls-files | grep -vE "$excluded"; }
distributed() {
    MAKEFLAGS= make -s --no-print-directory -C "$top_builddir" dist-list 2>/dev/null | sed -e "s|^$PWD/||" -e 's|^\(\.\./\)*||' -e 's|^\./||' |
        while read -r file; do
            if [ -d "$file" ]; then find "$file" -type f; else echo "$file"; fi
        done
}

expect_none "$(
    find fs backend tests man -type f ! -name '.*' \
        \( -name '*.c' -o -name '*.h' -o -name '*.sh' -o -name '*.py' -o -name '*.[178]' \) | sort |
        while read -r file; do
            grep -qE "(^|[[:space:]=])$file([[:space:]]|\$)" Makefile.am || echo "$file"
        done
)" "all sources and tests are in Makefile.am"

expect_none "$(tests/sim/planted.py --check || true)" "all bugs that can be planted have a place in the source"

# In an unpacked archive there is no git, and what is there was in the archive.
[ -e .git ] || echo "# left out: the archive has all files: would run in a git checkout"
if [ -e .git ] && [ -n "${top_builddir:-}" ]; then
    list=$(mktemp)
    trap 'rm -f "$list"' EXIT
    distributed | sort -u >"$list"
    expect_none "$(known | sort | comm -23 - "$list")" "all that git knows is in the archive that make dist makes"
fi
end_checks
