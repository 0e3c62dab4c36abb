#!/bin/bash
# Words that are gone from names and comments: one thing has one plain name, which a reader who is new here can guess.
set -eu
export LC_ALL=C
cd "${top_srcdir:-$(dirname "$0")/..}"

# The folders, with all below them, and the files whose names and comments must follow the words.
rooms='fs backend tests'
prose='fs backend tests'

# Parts of names, between underscores: of a variable, field, function, type, macro or file.  In place of
#   kin, odd         identity, compatible, conflict       told, untold    event, reported, invalidate
#   doubt, sure      verify                               asked, asks     request, pending
#   believe, belief  confirm                              alone, lone     uncontended
#   beat             heartbeat                            young           provisional, or how old it is
#   stray            displaced                            life, word      what the file does
names='kin kins kinship doubt doubts doubted sure told untold tells asked asks alone lone odd stray strays young anew
believe believes believed belief beat beats beaten patience teller gave_up give_up go_on let_go stand_still hold_still
in_doubt may_decide is_due is_left begin_anew take_up lay_down lay_to_rest ask_anew'

# In comments, as extended regular expressions with word boundaries around them.
phrases='(is|are|was|were|be|been) told
(is|are) to be
untold
no more
nor
(Who|Whoever|What) [a-z]+s
of which
kin
doubt
stray
anew
news'

# shellcheck source=checks.sh
. tests/checks.sh

# sources FOLDER…: the sources below.
sources() {
    find "$@" -type f \( -name '*.c' -o -name '*.h' -o -name '*.lua' \) | sort
}

# halves code|comment FILE…: "FILE:LINE: TEXT" of that half of each line that has one, without what strings say.
halves() {
    [ $# -gt 1 ] || return 0
    awk -v half="$1" '
        BEGIN { ARGV[1] = "" }
        function put(kind, text) { if (kind == half && text ~ /[^ ]/) print FILENAME ":" FNR ": " text }
        FNR == 1 { inside = 0 }
        {
            line = $0
            if (!inside) gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
            if (FILENAME ~ /[.]lua$/) {
                at = index(line, "--")
                put("code", at ? substr(line, 1, at - 1) : line)
                if (at) put("comment", substr(line, at))
                next
            }
            while (line != "") {
                at = index(line, inside ? "*/" : "/*")
                if (!at) { put(inside ? "comment" : "code", line); break }
                put(inside ? "comment" : "code", substr(line, 1, at - 1))
                line = substr(line, at + 2)
                inside = !inside
            }
        }' "$@"
}

pattern=$(tr -s ' \n' '|' <<<"$names" | sed 's/|$//')
# shellcheck disable=SC2046,SC2086
expect_none "$(halves code $(sources $rooms) | grep -iE ":.*(^|[^A-Za-z0-9])($pattern)([^A-Za-z0-9]|\$)" |
    grep -vE '^[^:]*:[0-9]+: *#include' || true)" "no name has a word that is gone"

# shellcheck disable=SC2046,SC2086
expect_none "$(sources fs backend | sed 's|.*/\([^/]*\)[.][a-z]*$|& \1|' | grep -E "(^| |_)($pattern|ask|turn|keep|without|term|size|call|change)\$" ||
    true)" "no file has a name that is gone"

pattern=$(tr '\n' '|' <<<"$phrases" | sed 's/|$//')
# shellcheck disable=SC2046,SC2086
expect_none "$([ -z "$prose" ] || halves comment $(sources $prose) | grep -wE "$pattern" || true)" "no comment has a phrase that is gone"

# scripts: those of the tests in shell and Python, without this one, which has the words.
scripts() {
    grep -rlE '^#!.*(sh|python)|^# shellcheck shell' tests quickstart | grep -vE '/check_words[.]sh$|[.](md|o|log)$' | sort
}

comments() { # FILE…: "FILE:LINE: # TEXT"
    awk 'match($0, /(^|[ \t])#[ ]/) { print FILENAME ":" FNR ": " substr($0, RSTART) }' "$@"
}

# shellcheck disable=SC2046
expect_none "$(comments $(scripts) | grep -wE "$pattern" || true)" "no comment of a script has a phrase that is gone"

pattern=$(tr -s ' \n' '|' <<<"$names" | sed 's/|$//')
# shellcheck disable=SC2046
expect_none "$(grep -nE "(^|[ ;({])(([a-z0-9]+_)*($pattern)(_[a-z0-9]+)*(\(\)|=)|def ([a-z0-9]+_)*($pattern)(_[a-z0-9]+)*\()" \
    $(scripts) || true)" "no function or variable of a script has a word that is gone"

end_checks
