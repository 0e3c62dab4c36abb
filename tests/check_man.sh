#!/bin/sh
# The manual pages are well formed.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

if ! command -v mandoc >/dev/null; then
    echo "1..0 # SKIP no mandoc"
    exit 0
fi

failed=0
number=0
for page in man/*.[178]; do
    number=$((number + 1))
    if complaints=$(mandoc -T lint -W warning "$page"); then
        echo "ok $number - $page"
    else
        echo "not ok $number - $page"
        echo "$complaints" | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$number"
exit $failed
