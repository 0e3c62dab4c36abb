#!/bin/sh
# The layers: fs/ knows of backend/ only what backend.h says (and clock and log;
# main.c also what opens the stores); backend/ knows nothing of fs/.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

failed=0
number=0

# The quoted includes of a file, by their last component.
includes() {
    sed -n 's|^[[:space:]]*#[[:space:]]*include[[:space:]]*"\(.*\)".*|\1|p' "$1" | sed 's|.*/||'
}

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

complaints=$(
    for file in fs/*.[ch]; do
        for header in $(includes "$file"); do
            case $file:$header in
            *:backend.h | *:clock.h | *:log.h | fs/main.c:local.h | fs/main.c:redis*.h) continue ;;
            esac
            if [ -e "backend/$header" ]; then
                echo "$file includes backend/$header"
            fi
        done
    done
)
tell "$complaints" "fs/ includes only the public headers of backend/"

complaints=$(
    for file in backend/*.[ch]; do
        for header in $(includes "$file"); do
            if [ -e "fs/$header" ]; then
                echo "$file includes fs/$header"
            fi
        done
        grep -Hn '^[[:space:]]*#[[:space:]]*include.*fuse' "$file" || true
    done
)
tell "$complaints" "backend/ includes nothing of fs/ nor of FUSE"

complaints=$(
    for directory in fs backend; do
        for file in "$directory"/*.[ch]; do
            other=$([ "$directory" = fs ] && echo backend || echo fs)
            [ ! -e "$other/${file##*/}" ] || echo "$file and $other/${file##*/}"
        done
    done
)
tell "$complaints" "no file name is used in both layers"

echo "1..$number"
exit $failed
