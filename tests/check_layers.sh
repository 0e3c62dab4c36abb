#!/bin/bash
# The rooms: a folder below fs/ and backend/ is a room.  A room includes headers of its own, and of rooms below it in
# tests/rooms; fs/ knows of backend/ what backend.h, clock.h, log.h and system.h say (the daemon also how to open each store);
# backend/ knows nothing of fs/.  No two object files call each other in a circle.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

rooms=$(awk '/^[0-9]/ { print $2 }' tests/rooms)

# shellcheck source=checks.sh
. tests/checks.sh

# "FILE HEADER" for each quoted include.
includes() {
    grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' fs backend |
        sed -E 's/^([^:]*):[0-9]*:[^"]*"([^"]*)".*/\1 \2/'
}

expect_none "$(includes | awk -v list="$rooms" '
    BEGIN { n = split(list, room); for (i = 1; i <= n; i++) depth[room[i]] = i }
    function place(path) { sub("/[^/]*$", "", path); return path }
    $2 == "config.h" || $2 ~ /[.]inc$/ { next }
    {
        from = place($1)
        to = place($2)
        if (to == "") { print $1 " includes " $2 " without its folder"; next }
        if (from == "fs/leaserun") {
            if (to != from && $2 != "fs/options/duration.h" && $2 != "backend/clock.h" && $2 != "backend/system.h") print $1 " includes " $2
            next
        }
        if (!(from in depth) || !(to in depth)) { print $1 " includes " $2 ": a room that is not in the list"; next }
        if (from ~ /^fs/ && to ~ /^backend/) {
            opens = from == "fs/daemon" && $2 ~ /^backend\/(local\/local|redis\/(redis|preflight)|redlock\/redlock|zookeeper\/zookeeper|postgresql\/postgresql)[.]h$/
            if ($2 !~ /^backend\/(backend|clock|log|system)[.]h$/ && !opens) print $1 " includes " $2
            next
        }
        if (depth[to] < depth[from]) print $1 " includes " $2 ": that room is above"
    }')" "includes go down only"

expect_none "$(includes | awk '$1 ~ /^backend/ && $2 ~ /^fs/ { print $1 " includes " $2 }'
    grep -rn '^[[:space:]]*#[[:space:]]*include.*fuse' backend || true)" "backend/ includes nothing of fs/ or FUSE"

# Of each source its object; what is left of a source that is gone is not looked at.
objects() {
    find fs backend -name '*.c' | while read -r source; do
        for object in "$1/${source%.c}.o" "$1/${source%/*}/leaserun-$(basename "$source" .c).o"; do
            [ ! -e "$object" ] || printf '%s\n' "$object"
        done
    done
}

# "CALLER CALLED" of each call that leaves its file, for tsort(1), which tells of loops.
calls() {
    objects "$1" | xargs nm -gAP | awk -v top="$1/" '
        { sub(":$", "", $1); sub("[.]o$", "", $1); sub("/leaserun-", "/", $1); $1 = substr($1, length(top) + 1) }
        $3 == "U" { user[++users] = $1; needs[users] = $2; next }
        $3 ~ /^[TDBRCVW]$/ { home[$2] = $1 }
        END { for (i = 1; i <= users; i++) if (needs[i] in home && home[needs[i]] != user[i]) print user[i], home[needs[i]] }'
}
build=${top_builddir:-.}
if [ "$(calls "$build" | wc -l)" -lt 100 ]; then
    expect_none "no object files below $build: build first" "calls are read from the object files"
fi
expect_none "$(calls "$build" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: \([a-z]*\/.*\)/\1 is in a circle/p' | sort -u)" "no two object files call each other in a circle"

expect_none "$(tests/draw_rooms.py --check man/rooms.svg || echo "tests/draw_rooms.py > man/rooms.svg")" "the picture of the rooms shows them as they are"

end_checks
