#!/bin/bash
# Acquiring with the idioms of shells: touch again and again, echo, times and umask.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "a name can be acquired again as soon as it was released"
for _ in {1..20}; do
    says A 'acquire("again")' ok
    says A 'rm("again")' ok
    expect absent again
    says B 'acquire("again")' ok
    says B 'rm("again")' ok
done

it "touch of a directory, by the empty name of a lock, fails for everybody"
mkdir "$MNT/below"
for touch in touch "busybox touch" /usr/lib/cargo/bin/coreutils/touch; do
    if command -v "${touch%% *}" >/dev/null; then
        for directory in "$MNT/" "$MNT/below" "$MNT/below/."; do
            # shellcheck disable=SC2086
            expect_not $touch "$directory"
        done
    fi
done
says A 'utime(".")' EISDIR
rmdir "$MNT/below"

it "touch L && echo \$\$ > L works, fifty times"
for i in {1..50}; do
    # shellcheck disable=SC2016
    if [ "$(bash -c 'touch "$1" && echo $$ > "$1" && [ "$(cat "$1")" = $$ ] && rm "$1" && echo fine' _ "$MNT/shell$i" 2>&1)" = fine ]; then
        pass
    else
        fail "round $i"
    fi
done

it "a second touch of L fails, from the same shell, in the first second and after it"
expect bash -c 'touch "$1"; ! touch "$1"' _ "$MNT/twice" 2>/dev/null
T=$NOW
expect touch "$MNT/mine"
expect_not touch "$MNT/mine" 2>/dev/null
expect_not busybox touch "$MNT/mine" 2>/dev/null
pause 1.3
expect_not touch "$MNT/mine" 2>/dev/null
expect_not busybox touch "$MNT/mine" 2>/dev/null
expect_not ln -s x "$MNT/mine" 2>/dev/null
expect_not bash -c 'set -C; : > "$1"' _ "$MNT/mine" 2>/dev/null
expect rm "$MNT/mine"

it "an application's own times and mode are kept: touch -d, umask"
expect touch -d '2001-02-03 04:05:06.789 UTC' "$MNT/dated"
expect_is "$(stat -c %Y "$MNT/dated")" 981173106
expect rm "$MNT/dated"

finish
