#!/bin/bash
# The layers: a folder below fs/ and backend/ is a room, and a header is included by its path from the top.  fs/
# knows of backend/ what backend.h, clock.h and log.h say (the daemon also how to open each store); backend/ knows nothing
# of fs/.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

failed=0
number=0

tell() { # COMPLAINTS DESCRIPTION
    number=$((number + 1))
    if [ -z "$1" ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        echo "$1" | sed 's/^/# /'
        failed=1
    fi
}

# "FILE HEADER" for each quoted include.
includes() {
    grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' fs backend |
        sed -E 's/^([^:]*):[0-9]*:[^"]*"([^"]*)".*/\1 \2/'
}

tell "$(includes | awk '
    function place(path) { sub("/[^/]*$", "", path); return path }
    $2 == "config.h" || $2 ~ /[.]inc$/ { next }
    {
        from = place($1)
        to = place($2)
        if (to == "") { print $1 " includes " $2 " without its folder"; next }
        if (from == "fs/leaserun") {
            if (to != from && $2 != "fs/options/duration.h" && $2 != "backend/clock.h") print $1 " includes " $2
            next
        }
        if (from ~ /^fs/ && to ~ /^backend/) {
            opens = from == "fs/daemon" && $2 ~ /^backend\/(local\/local|redis\/(redis|check))[.]h$/
            if ($2 !~ /^backend\/(backend|clock|log)[.]h$/ && !opens) print $1 " includes " $2
            next
        }
    }')" "fs/ includes only the public headers of backend/"

tell "$(includes | awk '$1 ~ /^backend/ && $2 ~ /^fs/ { print $1 " includes " $2 }'
    grep -rn '^[[:space:]]*#[[:space:]]*include.*fuse' backend || true)" "backend/ includes nothing of fs/ nor of FUSE"

echo "1..$number"
exit $failed
