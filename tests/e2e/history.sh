# history: two hosts, each a network and a mount behind it, a history of their processes, and faults of all of these; for
# test_history_*.sh, after lib.sh and what starts the server.
#
# The script sets OPTIONS, and AGAIN for a mount whose daemon was killed; uri PORT, which prints the store's address; and
# KINDS, functions that are a fault each, over and mended when they return.
#
# Environment: STRESS_FAULTS, how many (20; 240 with E2E_FULL); STRESS_CLIENTS, processes (16); STRESS_NAMES (6);
# STRESS_SEED; STRESS_PROGRAMS, the directory of the programs (default: tests/stress of the build directory).
# shellcheck shell=bash disable=SC2034,SC2154

FAULTS=${STRESS_FAULTS:-20}
[ -z "${E2E_FULL:-}" ] || FAULTS=${STRESS_FAULTS:-240}
SEED=${STRESS_SEED:-$((SRANDOM % 1000000))}
PROGRAM=${STRESS_PROGRAMS:-${top_builddir:-.}/tests/stress}/faults
[ -x "$PROGRAM" ] || skip_all "no program faults: make check builds it, or set STRESS_PROGRAMS"
RANDOM=$((SEED % 32768))

declare -A port=() at=() daemon=()

# host A|B SERVER-PORT
host() {
    partner "proxy$1" "$PYTHON" -S -E "$E2E_DIR/../proxy.py" --ids --seed "$SEED" --to "127.0.0.1:$2"
    port[$1]=$(ask "proxy$1" port)
    mount_backend "$(uri "${port[$1]}")" "$OPTIONS"
    at[$1]=$MNT daemon[$1]=$DAEMON
}
net() { # HOST COMMAND…
    local answer
    answer=$(ask "proxy$1" "${*:2}")
    [ "$answer" = ok ] || fail "the proxy of $1: ${*:2}: $answer"
}
mount_again() { # HOST
    crash "${at[$1]}"
    mount_at "${at[$1]}" "$(uri "${port[$1]}")" "$AGAIN"
    daemon[$1]=$DAEMON
}

short() { pause "0.$((RANDOM % 3 + 1))"; }
long() { pause "1.$((RANDOM % 8 + 2))"; }       # than the TTL
either() { if ((RANDOM % 2)); then short; else long; fi; }

host_swallowed() { net "$1" pause; either; net "$1" resume; }
host_refused() { net "$1" refuse on; net "$1" drop; either; net "$1" refuse off; }
host_reset() { net "$1" drop; }
host_delayed() { net "$1" delay both $((RANDOM % 150)) 50; long; net "$1" clear; }
host_breaking() { net "$1" break both 0.$((RANDOM % 3 + 1)); short; net "$1" clear; }
host_stopped() { kill -STOP "${daemon[$1]}"; either; kill -CONT "${daemon[$1]}"; }
host_killed() { mount_again "$1"; }
both_swallowed() { net A pause; net B pause; either; net A resume; net B resume; }

# inject COUNT: that many, of all kinds in turn, in an order by chance.
inject() {
    local i kind side
    local -A counts=()
    local -a order=()
    for ((i = 0; i < $1; i++)); do
        [ ${#order[@]} -gt 0 ] || mapfile -t order < <(for kind in "${KINDS[@]}"; do echo "$RANDOM $kind"; done | sort -n)
        kind=${order[0]#* }
        order=("${order[@]:1}")
        side=A
        ((RANDOM % 2)) && side=B
        "$kind" "$side"
        counts[$kind]=$((${counts[$kind]:-0} + 1))
        pause "0.$((RANDOM % 4 + 1))"
    done
    for kind in "${!counts[@]}"; do say "$kind: ${counts[$kind]}"; done
}
mend() {
    local side
    for side in A B; do
        net "$side" clear
        net "$side" drop
        expect eventually "${MEND_LIMIT:-20}" timeout 5 ls "${at[$side]}" >/dev/null
    done
}

# run_history OPTION…: in the background.
run_history() {
    rm -rf "$TEST_DIR/files"
    mkdir "$TEST_DIR/files"
    start "$PROGRAM" --clients "${STRESS_CLIENTS:-16}" --names "${STRESS_NAMES:-6}" --seed "$SEED" --ttl 1000 "$@" \
        "$TEST_DIR/files" "${at[A]}" "${at[B]}" >"$TEST_DIR/history" 2>&1
    HISTORY=$STARTED
}
# end_history: sets STATUS.
end_history() {
    mend
    STATUS=0
    kill -TERM "$HISTORY"
    wait "$HISTORY" || STATUS=$?
    sed 's/^/# /' "$TEST_DIR/history" | head -120
}
reported() { grep -qE "$1" "$TEST_DIR/history"; }

# history_of SERVER-PORT OPTION…: of two hosts, until all faults are over.
history_of() {
    local side width
    host A "$1"
    host B "$1"
    for width in 1 2; do # semaphores, whose waiters lose their place with their mount's connection
        mkdir "${at[A]}/q$width"
        setfattr -n user.lease.width -v "$width" "${at[A]}/q$width"
    done
    run_history "${@:2}"
    for side in A B; do # that will certainly bite
        net "$side" pause
        pause 1.6
        net "$side" resume
        pause 0.5
    done
    inject $((FAULTS - 2))
    end_history
    expect test "$STATUS" -ne 1
    expect test "$STATUS" -ne 3
    expect reported '^0 overlaps, 0 fencing tokens that went back'
    expect reported '[1-9][0-9]* kills, [1-9][0-9]* stops'
}
