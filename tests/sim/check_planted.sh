#!/bin/bash
# Half of the bugs that can be planted, those that few worlds catch: each of them is caught.
cd "${top_builddir:-.}" || exit 1
set -o pipefail
if MAKEFLAGS='' make -s planted SEEDS=200 PLANTED='--quick --step 20' | sed 's/^/# /'; then
    echo "ok 1 - bugs that are planted are caught"
else
    echo "not ok 1 - bugs that are planted are caught"
fi
echo 1..1
