#!/bin/sh
# Every source and test is listed in Makefile.am, so that it is built, run and
# distributed: a file that is only in the checkout is one that nobody else has.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

missing=$(
    find fs backend tests man -type f ! -name '.*' \
        \( -name '*.c' -o -name '*.h' -o -name '*.sh' -o -name '*.py' -o -name '*.[178]' \) | sort |
        while read -r file; do
            grep -qE "(^|[[:space:]=])$file([[:space:]]|\$)" Makefile.am || echo "$file"
        done
)
echo 1..1
if [ -z "$missing" ]; then
    echo "ok 1 - all sources and tests are in Makefile.am"
else
    echo "not ok 1 - all sources and tests are in Makefile.am"
    echo "$missing" | sed 's/^/# not listed: /'
    exit 1
fi
