#!/bin/bash
# CONTRIBUTING.md: every room is in its tour, every test of the column "run" and every file that it names exists and has the functions named with it, and the
# way of a touch has at most eight stops.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

# shellcheck source=checks.sh
. tests/checks.sh

tour=$(sed -n '/^## A tour of the rooms/,/^## [^A]/p' CONTRIBUTING.md)
touch=$(sed -n '/^### The way of a touch/,/^### The way of an answer/p' <<<"$tour")

expect_none "$(find fs backend tests -name '*.[ch]' -o -name '*.sh' -o -name '*.lua' | sed 's|/[^/]*$||' | sort -u |
    while read -r room; do
        [ "$room" = tests ] || grep -qF "| \`$room\` | \`$room/" <<<"$tour" || echo "$room is not in the tour"
    done)" "every room is in the tour, with a file to start with"

# The last column of the rooms of the program, without which make check-touched runs nothing.
expect_none "$(sed -nE 's/^\| `((fs|backend)[^`]*)` \|.*\|( `([^`]*)`)? \|$/\1 \4/p' <<<"$tour" | while read -r room patterns; do
    [ -n "$patterns" ] || echo "$room has no tests"
    set -f # the patterns are not for the shell
    for pattern in $patterns; do
        [ -n "$(find tests \( -path "tests/$pattern.*" -o -path "tests/*/$pattern.*" \))" ] || echo "$room: no test is called $pattern"
    done
done)" "the tour names the tests of every room"

expect_none "$(grep -oE '(`|[ =])(fs|backend|tests|man|debian)/[a-z_0-9/.-]*' CONTRIBUTING.md | tr -d '` =' | sort -u |
    while read -r file; do
        [ -e "$file" ] || [ -e "$file.c" ] || echo "$file: no such file, and no test"
    done)" "every file that is named is there"

# "WORDS" (FILE), across lines.
expect_none "$(tr -s '\n ' ' ' <CONTRIBUTING.md | grep -oE '`[^`|]+` +\(`[^`]+`\)' | sed -E 's/^`([^`]+)` +\(`([^`]+)`\)$/\2 \1/' |
    while read -r file function; do
        case $function in
        *[!a-z_0-9]*) grep -qF -- "$function" "$file" || echo "$file has no $function" ;;
        *) grep -qE "^[a-z].*[ *]$function\(" "$file" || echo "$file has no function $function" ;;
        esac
    done
    grep -qF 't->head.held = held' backend/lockspace/lockspace.c || echo "nothing grants in lockspace.c")" \
    "every function is in the file that is named with it"

# The next stop is called in the file of the one before it, or stands in a table of its own file.
expect_none "$(sed -nE 's/^[0-9]+\. `([a-z_]+)` \(`([^`]+)`\).*/\2 \1/p' <<<"$touch" | {
    before=
    while read -r file function; do
        [ -z "$before" ] || grep -qE "[^a-z_]$function\(" "$before" || grep -qE "= $function," "$file" ||
            echo "$before does not lead to $function"
        before=$file
    done
})" "each stop on the way of a touch leads to the next"

stops=$(grep -cE '^[0-9]+\. `[a-z_]+` \(`' <<<"$touch" || true)
expect_none "$([ "$stops" -gt 0 ] && [ "$stops" -le 8 ] || echo "$stops stops")" "the way of a touch has at most eight stops"

end_checks
