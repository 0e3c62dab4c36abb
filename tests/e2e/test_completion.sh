#!/bin/bash
# Completion in bash: sourced, and called as readline does.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
SOURCES=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=../../fs/leasefs.bash-completion
. "$SOURCES/fs/leasefs.bash-completion"

mkdir "$TEST_DIR/here"
cd "$TEST_DIR/here" || exit 1
mkdir mountpoint store
: >somefile

# completes LINE: what readline would offer at its end, sorted, in one line.  It breaks
# words at = and : as well, which the functions must cope with.
completes() {
    local line=$1 function
    local COMP_LINE=$line COMP_POINT=${#line} COMP_CWORD COMP_WORDS
    line=${line//=/ = }
    read -ra COMP_WORDS <<<"${line//:/ : }"
    line=$1
    [[ $line != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    function=$(complete -p "${COMP_WORDS[0]}" | sed 's/.*-F \([^ ]*\).*/\1/')
    COMPREPLY=()
    "$function" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}" | sort -u | paste -sd ' '
}

offers() { # LINE PATTERN
    expect_is "$(completes "$1")" "$2" "after '$1'"
}

it "sourcing it says nothing, and it needs no package"
expect_is "$(env -i bash --norc -uc ". '$SOURCES/fs/leasefs.bash-completion'" 2>&1)" ""
expect complete -p leasefs mount.leasefs leaserun >/dev/null

it "backends, and the directory of a local store"
offers 'leasefs ' 'local local: memory postgresql:// redis+cluster:// redis+sentinel:// redis+unix:// redis:// rediss:// redlock:// zookeeper://'
offers 'leasefs me' memory
offers 'leasefs local:' 'mountpoint store'
offers 'leasefs local:st' store
offers 'leasefs redis:' //
COMP_WORDBREAKS=${COMP_WORDBREAKS//[=:]/} offers 'leasefs local:st' local:store

it "mount points are directories, wherever the options stand"
offers 'leasefs memory ' 'mountpoint store'
offers 'leasefs -f -o ttl=5s memory mo' mountpoint
offers 'mount.leasefs local mo' mountpoint
offers 'leasefs memory mountpoint x' ''

it "options of the command line and of -o lists, with their values"
offers 'leasefs --v' --version
offers 'leasefs -' '*-f*-o*'
offers 'leasefs -o allow' 'allow_other allow_root'
offers 'leasefs -o tt' 'ttl='
offers 'leasefs -o allow_other,ow' 'allow_other,owner=process allow_other,owner=user'
offers 'leasefs -o owner=' 'process user'
offers 'leasefs -o ttl=5s,sync=a' always
offers 'leasefs memory mountpoint -o noat' noatime
offers 'leasefs -o credentials=some' somefile
offers 'leasefs -o ttl=1' '10s 1h 1m'

it "every option of the daemon is offered and is in leasefs(8) or the manual of its store, and each that is offered is one"
all=$("$LEASEFS" --help | sed -n '/^Options after/,/^  without/ { /^  of mount/,/^  without/ { /^  without/d; s/^  of mount(8):\|^ *//; s/, */\n/g; s/^ *//; p; b; }
    s/^  \([a-z_]*=*\).*/\1/p; }' | grep .)
expect_between 35 "$(wc -w <<<"$all")" 100 "options found"
for word in $all; do
    expect_is " $(completes "leasefs -o ${word%=}") " "* ${word}* *" "$word"
    expect grep -qE "^\.(It )?Cm.* ?${word//_/_}( |\$)|^\.Cm ${word}( |\$)|Cm ${word%=}= Ns" "$SOURCES/man/leasefs.8" "$SOURCES"/man/leasefs-*.7
done
for word in $(completes 'leasefs -o '); do
    expect_is " ${all//$'\n'/ } default_permissions " "* ${word%%=*}@(=|) *" "offered: $word"
done

it "leaserun: its options, then a lock, then a command and its arguments"
offers 'leaserun --nonb' --nonblock
offers 'leaserun -w 1' '10s 1m'
offers 'leaserun some' somefile
offers 'leaserun -n somefile mkfif' mkfifo
offers 'leaserun -n somefile -- mkfif' mkfifo
offers 'leaserun somefile cat some' somefile
offers 'leaserun -' '*--ttl*'
offers 'leaserun --w' --width
offers 'leaserun -N ' ''
offers 'leaserun -N 3 some' somefile
offers 'leaserun -l some' somefile
offers 'leaserun -l somefile --loc' --lock
offers 'leaserun -l somefile -l some' somefile
offers 'leaserun -l somefile mkfif' mkfifo
offers 'leaserun -l somefile -- mkfif' mkfifo
offers 'leaserun somefile -c mkfif' mkfifo
offers 'leaserun --status --j' --json
offers 'leaserun --get somefile --tt' --ttl
offers 'leaserun --put some' somefile
offers 'leaserun --top mountp' mountpoint
offers 'leaserun --once 5' 55m
offers 'leaserun --once 55m some' somefile
offers 'leaserun --break some' somefile

it "every option of leaserun is offered and is in the man page, and each that is offered is one"
LEASERUN=$(dirname "$LEASEFS")/leaserun
all=$("$LEASERUN" --help | grep -oE '^ +-.*' | grep -oE -- '(^| )--?[a-zA-Z-]+' | sort -u)
expect_between 30 "$(wc -w <<<"$all")" 60 "options found"
for word in $all; do
    expect_is " $(completes 'leaserun -') " "* $word *" "$word"
    expect grep -qE -- "(Fl|,) (-)?${word#-}( |\$)|Fl .*, ${word#-}( |,|\$)" "$SOURCES/man/leaserun.1"
done
for word in $(completes 'leaserun -'); do
    expect_is " ${all//$'\n'/ } " "* $word *" "offered: $word"
done

it "leaserun: mount points of leasefs are offered as the place of locks"
mount_memory
offers "leaserun ${MNT%?}" "*$MNT/*"
expect touch "$MNT/job"
offers "leaserun $MNT/j" "$MNT/job"

finish
