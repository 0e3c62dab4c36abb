#!/bin/sh
# The sources are laid out as .clang-format says (`make format` does it).
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

if ! command -v clang-format >/dev/null; then
    echo "1..0 # SKIP no clang-format"
    exit 0
fi
if ! clang-format --version | grep -q 'version 14\.'; then
    echo "1..0 # SKIP other versions than clang-format 14 lay out otherwise"
    exit 0
fi

failed=0
number=0
for directory in fs backend tests; do
    number=$((number + 1))
    if complaints=$(find "$directory" -name "*.[ch]" -exec clang-format --dry-run --Werror {} + 2>&1); then
        echo "ok $number - $directory"
    else
        echo "not ok $number - $directory"
        echo "$complaints" | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$number"
exit $failed
