#!/bin/sh
# The manual pages are well formed, for mandoc and for groff, and fit a terminal.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

command -v groff >/dev/null || echo "# left out: the warnings of groff: would run with the package groff"
if ! command -v mandoc >/dev/null; then
    echo "1..0 # SKIP no mandoc"
    exit 0
fi
widest=100 # columns of an example; text is filled to 80

# Prints a line for each fault of a page.
complain() { # PAGE
    mandoc -T lint -W warning "$1" || :
    mandoc -T ascii -O width=80 "$1" | sed 's/.\x08//g' |
        awk -v widest=$widest -v page="$1" 'length > widest { print page ": " length " columns: " $0 }'
    # troff cannot break a line: a cell is wider than its column
    ! command -v groff >/dev/null || groff -ww -mdoc -T ascii "$1" 2>&1 >/dev/null
    awk -v page="$1" '
        /[a-z0-9]\.(It|Pp|El|Bl|Ss|Sh|Xr|Cm|Ar|Ql) / { print page ":" NR ": a macro within a line: " $0 }
        /^\.Pq Ql [^"]* , Ql / { print page ":" NR ": the quotes hold what follows: " $0 }
        { gsub(/ , Ql /, " ") }
        /^\.(Pq )?(Ql|Dq) [^"]* (,|No|Pa|Va|Cm|Xr|or) [^ ]/ { print page ":" NR ": the quotes hold what follows: " $0 }
        /^\.It .*(Ql|Dq|Pq) [^"]* Ta / { print page ":" NR ": the quotes hold the rest of the row: " $0 }
        /^\.(Ql|Dq|It) No / || /(\.It|Ta) (An|At|In) / { print page ":" NR ": a word that is a macro: " $0 }
    ' "$1"
    # "see X" leads to a heading that is there
    sed -n 's/.*Sx \([^,]*[^ ,.;:]\).*/\1/p' "$1" | while read -r heading; do
        grep -qxF -e ".Sh $heading" -e ".Ss $heading" "$1" || echo "$1: there is no heading $heading"
    done
    sed -n 's/^\.It .* Ta Xr \([^ ]*\) \([1-8]\) , No \(.*[A-Za-z)]\)$/\1.\2 \3/p' "$1" | while read -r other heading; do
        grep -qixF -e ".Sh $heading" -e ".Ss $heading" "man/$other" || echo "$1: $other has no heading $heading"
    done
}

failed=0
number=0
for page in man/*.[178]; do
    number=$((number + 1))
    complaints=$(complain "$page")
    if [ -z "$complaints" ]; then
        echo "ok $number - $page"
    else
        echo "not ok $number - $page"
        echo "$complaints" | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$number"
exit $failed
