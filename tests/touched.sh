#!/bin/bash
# touched.sh BASE TEST…: prints those of these tests that concern what differs from the commit BASE: those that the tour in
# CONTRIBUTING.md names for a room, and tests that changed themselves.  Says on stderr for which files it knows none.
set -euo pipefail -f # patterns are not for the shell
base=$1
shift
cd "${top_srcdir:-$(dirname "$0")/..}"

# Prints what to run for a file: the last column of its folder, or of the nearest one above.
run_of() { # FILE
    local room=$1
    while [ "$room" != . ]; do
        room=$(dirname "$room")
        awk -F ' *[|] *' -v room="\`$room\`" '$2 == room { print $5; found = 1 } END { exit !found }' CONTRIBUTING.md && return
    done
    return 1
}

{
    git -c safe.directory='*' diff --merge-base --name-only "$base"
    git -c safe.directory='*' ls-files --others --exclude-standard
} | while read -r file; do
    patterns=$(case $file in fs/* | backend/*) run_of "$file" ;; tests/*) basename "${file%.c}" ;; esac | tr -d '`') || true
    known=no
    for pattern in $patterns; do
        for test; do
            # shellcheck disable=SC2053 # a pattern is meant
            if [[ ${test#tests/} == $pattern || $(basename "$test" .sh) == $pattern || $test == "$file" ]]; then
                echo "$test"
                known=yes
            fi
        done
    done
    [ $known = yes ] || echo "no test is named for $file: run make check-quick" >&2
done | sort -u
