#!/bin/bash
# Looks for inputs that break a fuzz target: make fuzz [NAME=VALUE…], or this script in a build directory.
#
#   FUZZ_SECONDS   for each target (default 60)
#   FUZZ_TARGETS   "attribute journal message options replies uri" (default: all)
#   FUZZ_KEEP      1: what has found new ways through the code is kept in tests/fuzz/corpus, as few inputs as do
#
# Builds with clang below ./fuzz.  An input that breaks something is left there as TARGET/crash-…, and told.
set -euo pipefail
source=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
seconds=${FUZZ_SECONDS:-60}
read -ra targets <<<"${FUZZ_TARGETS:-attribute journal message options replies uri}"

command -v clang >/dev/null || {
    echo "make fuzz needs clang (Debian: clang libclang-rt-14-dev)" >&2
    exit 77
}
mkdir -p fuzz && cd fuzz
[ -e Makefile ] || "$source/configure" CC=clang --enable-fuzzing >configure.log 2>&1 || {
    tail -n 20 configure.log >&2
    exit 1
}
make -s -j "$(nproc)" libleasefs.a "${targets[@]/#/tests/fuzz/fuzz_}" >make.log 2>&1 || {
    grep -E 'error|Error' make.log >&2
    exit 1
}

# What the sources compare with is not found by chance.
grep -ohE '"[a-z_+]+[=:/]*"' "$source"/fs/options/mount_option.c "$source"/backend/{redis/conn,redlock,zookeeper}/uri.c >words
export ASAN_OPTIONS=quarantine_size_mb=16:${ASAN_OPTIONS:-} # memory that is used again is quicker

status=0
for target in "${targets[@]}"; do
    kept=$source/tests/fuzz/corpus/fuzz_$target
    mkdir -p "$target/found"
    case $target in # the largest inputs, and how long one may take
    message | replies) options=(-max_len=800 -timeout=60) ;; # a byte is a step, nearly
    journal) options=(-max_len=4096 -timeout=20) ;;
    *) options=(-max_len=512 -timeout=20 -dict=words) ;;
    esac
    # a target's processes end with it
    if setsid -w "tests/fuzz/fuzz_$target" -max_total_time="$seconds" -print_final_stats=1 -detect_leaks=0 -artifact_prefix="$target/" \
        -rss_limit_mb=2048 "${options[@]}" "$target/found" "$kept" >"$target/log" 2>&1; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$target/log") inputs, nothing found"
    else
        status=1
        echo "$target: broken: see $PWD/$target/log"
        grep -aE 'SUMMARY|ERROR|Assertion|Test unit written' "$target/log" || tail -n 20 "$target/log"
    fi
    if [ "${FUZZ_KEEP:-0}" = 1 ]; then
        rm -rf "$target/least" && mkdir -p "$target/least"
        "tests/fuzz/fuzz_$target" -merge=1 "${options[@]}" "$target/least" "$kept" "$target/found" >>"$target/log" 2>&1
        rm -f "$kept"/*
        find "$target/least" -type f -size -2k | sort | head -n 150 | xargs cp -t "$kept"
    fi
done
exit $status
