#!/bin/bash
# The lock tools of the world, as packaged, two contenders of each against one another (tools/matrix, tools/compete.py).
#
#   tests/e2e/test_tools.sh [WORD]...     only the tools whose package or name contains one of the words
#
# Leaves what was seen in tests/e2e/tools.tsv of the build directory, from which tools/table makes the list of
# docs/tools.md.  MOUNT_A and MOUNT_B, when set, are two mounts of one store that are there already.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "$PYTHON" ] || skip_all "no python3"

results=$TEST_DIR/tools.tsv
if [ -n "${top_builddir:-}" ] && [ $# -eq 0 ]; then
    mkdir -p "$top_builddir/tests/e2e"
    results=$top_builddir/tests/e2e/tools.tsv
fi
if [ "${E2E_STORE:-}" = redis ]; then
    results=$TEST_DIR/tools.tsv
    # shellcheck source=redis.sh
    . "$E2E_DIR/redis.sh"
    redis_start
    mount_two allow_other
elif [ -z "${MOUNT_A:-}" ]; then
    mount_memory allow_other # for tools that are set-group-ID
    MOUNT_A=$MNT
fi
mkdir "$TEST_DIR/contenders"
start "$PYTHON" "$E2E_DIR/tools/compete.py" "${@/#/--only=}" -- "$MOUNT_A" "${MOUNT_B:-$MOUNT_A}" \
    "$TEST_DIR/contenders" >"$results"
wait "$STARTED"
status=$?

trials=0
while IFS=$'\037' read -r outcome kind tool package _ _ _ _ _ seen; do
    [ -n "$outcome" ] || continue
    name="${package:+$package: }$tool"
    trials=$((trials + 1))
    case $outcome in
    pass)
        it "$name: $seen"
        pass
        ;;
    fail)
        it "$name"
        fail "$seen"
        awk -F '\t' -v tool="$tool" -v kind="$kind" \
            '$1 != "" { mine = $1 == "fail" && $2 == kind && $3 == tool } $1 == "" && mine { print "#" $0 }' "$results"
        ;;
    skip) skip "$name" "$seen" ;;
    absent) say "$name: not tested, ${seen%% (*}" ;;
    esac
done < <(tr '\t' '\037' <"$results") # a tab would take empty fields together

it "all of the matrix was gone through"
expect [ "$status" -eq 0 ]
expect [ "$trials" -gt 0 ]

if [ $# -eq 0 ] && [ -z "${E2E_STORE:-}" ] && [ -n "${top_srcdir:-}" ]; then
    it "docs/tools.md shows what was seen (else: tools/table --into)"
    expect "$PYTHON" "$E2E_DIR/tools/table" --check "$top_srcdir/docs/tools.md" "$results"
fi

finish
