# shellcheck shell=bash
# lib.sh: what the tests on real mounts share.  A test sources it, mounts, states
# behaviours, and ends with `finish`:
#
#     . "$(dirname "$0")/lib.sh"
#     mount_memory ttl=2
#     actor A; actor B
#     it "open(O_CREAT|O_EXCL) on a held name is EEXIST"
#     says A 'acquire("x")' ok
#     says B 'acquire("x")' EEXIST
#     finish
#
# It promises: TAP on stdout, one line for each `it`; a mount is only used once
# it answers; what the test mounted (known by its device number) is unmounted
# and what it started (known by its pid) is ended, whatever happens; a report of
# a sanitizer in the daemon's log fails the case during which it was written.
#
# Environment: LEASEFS, the daemon's binary, and LEASEFS_OTHER, that of every second mount (default: leasefs of the current
# directory or of PATH); CI, when set, turns a skip into a failure; E2E_SLACK,
# milliseconds allowed above a promised upper limit of time (default 1500);
# E2E_LIMIT, seconds after which a script that hangs is ended (default 240).

set -u
export LC_ALL=C

E2E_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # for the tests
SLACK=${E2E_SLACK:-1500}
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$(command -v /usr/bin/python3 || command -v python3) || PYTHON=
fi

cases=0
failures=0
case_name=
case_expectations=0
case_failed=0
reports_seen=0
report='ERROR: |runtime error: |^==[0-9]+==ERROR|WARNING: ThreadSanitizer'
finished=no
MNT=
LOG=
DAEMON=
declare -a mount_points=() mount_devices=() mount_daemons=() mount_logs=() started=()
declare -A actor_pid=() actor_in=() actor_out=()

# A mount namespace has a copy of every mount that was there, and keeps the daemons of other tests alive.
if [ -n "${E2E_NAMESPACE:-}${README_NAMESPACES:-}" ]; then
    while read -r point; do
        umount -l "$(printf %b "$point")"
    done < <(awk '$3 == "fuse.leasefs" { print $2 }' /proc/self/mounts)
fi

# --- results ---

say() {
    printf '# %s\n' "$*"
}

skip_all() {
    finished=yes
    if [ -n "${CI:-}" ]; then
        printf '1..1\nnot ok 1 - %s (skipping is a failure when CI is set)\n' "$1"
        exit 1
    fi
    printf '1..0 # SKIP %s\n' "$1"
    exit 0
}

# Begins a case, named after the behaviour; it ends with the next `it`, `skip` or `finish`.
it() {
    end_case
    case_name=$1
    case_expectations=0
    case_failed=0
}

skip() { # NAME REASON
    end_case
    cases=$((cases + 1))
    if [ -n "${CI:-}" ]; then
        failures=$((failures + 1))
        printf 'not ok %d - %s (not tested: %s; a failure when CI is set)\n' "$cases" "$1" "$2"
    else
        printf 'ok %d - %s # SKIP %s\n' "$cases" "$1" "$2"
    fi
}

# A case that this machine cannot run; tests/run.sh lists it at the end.
left_out() { # NAME WHAT-WOULD-RUN-IT
    end_case
    say "left out: $1: would run $2"
}

end_case() {
    [ -n "$case_name" ] || return 0
    scan_logs
    cases=$((cases + 1))
    if [ "$case_expectations" -eq 0 ]; then
        say "nothing was expected"
        case_failed=1
    fi
    if [ "$case_failed" -eq 0 ]; then
        printf 'ok %d - %s\n' "$cases" "$case_name"
    else
        failures=$((failures + 1))
        printf 'not ok %d - %s\n' "$cases" "$case_name"
    fi
    case_name=
}

fail() {
    case_expectations=$((case_expectations + 1))
    case_failed=1
    say "${BASH_SOURCE[-1]##*/}:${BASH_LINENO[-2]}: $*"
}

pass() {
    case_expectations=$((case_expectations + 1))
}

# The command succeeds.
expect() {
    if "$@"; then pass; else fail "failed: $*"; fi
}

# The command fails (and is not merely missing, or ended by a signal).
expect_not() {
    local status=0
    "$@" || status=$?
    if [ "$status" -ne 0 ] && [ "$status" -lt 126 ]; then pass; else fail "status $status, should have failed: $*"; fi
}

# expect_is ACTUAL PATTERN [WHAT]: glob match.
expect_is() {
    # shellcheck disable=SC2053 # a pattern is meant
    if [[ $1 == $2 ]]; then pass; else fail "${3:-value}: got '$1', not '$2'"; fi
}

# expect_re ACTUAL REGEX [WHAT]
expect_re() {
    if [[ $1 =~ $2 ]]; then pass; else fail "${3:-value}: got '$1', not /$2/"; fi
}

# expect_between LOW VALUE HIGH [WHAT]: integers.
expect_between() {
    if [ "$1" -le "$2" ] && [ "$2" -le "$3" ]; then pass; else fail "${4:-value}: $2 is not in $1..$3"; fi
}

# A sanitizer writes into $TEST_DIR/sanitizer/, also for a daemon in the background, or into the log.
scan_logs() {
    local total
    total=$(cat /dev/null "${mount_logs[@]}" "$TEST_DIR"/sanitizer/* 2>/dev/null | grep -cE "$report")
    if [ "$total" -gt "$reports_seen" ]; then
        fail "$((total - reports_seen)) new report(s) of a sanitizer:"
        cat /dev/null "${mount_logs[@]}" "$TEST_DIR"/sanitizer/* 2>/dev/null |
            grep -E -A25 "$report" | sed 's/^/# /' | head -80
        reports_seen=$total
    fi
}

finish() {
    local i name daemons
    end_case
    for name in "${!actor_pid[@]}"; do end_actor "$name"; done
    daemons=${mount_daemons[*]}
    if [ -n "${daemons// /}" ]; then
        it "the daemon ends with its mount, exit status 0, nothing in its log that a sanitizer wrote"
        for i in "${!mount_points[@]}"; do
            [ -z "${mount_daemons[i]}" ] || { unmount "${mount_points[i]}" && pass; }
        done
        end_case
    fi
    finished=yes
    printf '1..%d\n' "$cases"
    [ "$failures" -eq 0 ]
    exit
}

# --- time ---

# Milliseconds of CLOCK_BOOTTIME (the kernel tells hundredths here), in $NOW.
now() {
    read -r NOW _ </proc/uptime
    NOW=$((${NOW/./} * 10))
}

# A pause, for where the contract itself speaks of time; never to wait for something.
pause() {
    read -r -t "$1" _ <&"$never"
    return 0
}

# Goes on when $NOW has reached the given milliseconds.
until_time() {
    now
    while [ "$NOW" -lt "$1" ]; do
        pause 0.01
        now
    done
}

# eventually SECONDS COMMAND…: succeeds as soon as the command does.
eventually() {
    local limit
    now
    limit=$((NOW + $1 * 1000))
    shift
    until "$@"; do
        now
        [ "$NOW" -lt "$limit" ] || return 1
        pause 0.01
    done
}

# constantly MILLISECONDS COMMAND…: the command holds over and over for that long.
constantly() {
    local limit
    now
    limit=$((NOW + $1))
    shift
    while [ "$NOW" -lt "$limit" ]; do
        "$@" || return 1
        pause 0.02
        now
    done
}

# The literal blocks of a section of a manual, each ended by a NUL.
examples() { # MANUAL SECTION
    awk -v section=".Sh $2" '
        /^\.Sh / { inside = $0 == section }
        inside && /^\.Ed/ { literal = 0; printf "%c", 0 }
        literal { gsub(/\\&/, ""); gsub(/\\e/, "\\"); print }
        inside && /^\.Bd -literal/ { literal = 1 }' "$E2E_DIR/../../man/$1"
}

# --- locks, as anybody sees them ---

exists() { [ -e "$MNT/$1" ] || [ -L "$MNT/$1" ]; }
absent() { ! [ -e "$MNT/$1" ] && ! [ -L "$MNT/$1" ]; }
gone_from() { [ ! -e "$1/$2" ]; } # MOUNTPOINT NAME
attribute() { getfattr --only-values --absolute-names -n "user.lease.$2" "$MNT/$1" 2>/dev/null; }
waiters() { [ "$(attribute "$1" waiters)" = "$2" ]; } # NAME COUNT
logged() { grep -q -- "$2" "$1"; }                    # FILE PATTERN

# Seconds as the attributes show them, "1.500", "30" or "30s", in milliseconds.
milliseconds() {
    local text=${1%s} fraction
    case $text in
    *m) echo "${text%m}" && return ;; # 500ms
    *.*)
        fraction=${text#*.}000
        echo $((${text%.*} * 1000 + 10#${fraction:0:3}))
        ;;
    *) echo $((text * 1000)) ;;
    esac
}

remaining() {
    milliseconds "$(attribute "$1" remaining)"
}

# As Debian has it by default, until the script ends.  It is set for the whole machine: one script at a time.
protect_regular() {
    exec {regular_lock}>>/run/lock/leasefs-protected-regular && flock -w 100 "$regular_lock" || return 1
    regular=$(sysctl -n fs.protected_regular 2>/dev/null)
    [ "$regular" = 2 ] || sysctl -q -w fs.protected_regular=2 2>/dev/null
}

# --- processes ---

# start COMMAND…: in the background, ended with the test; its pid is in $STARTED.
start() {
    "$@" &
    STARTED=$!
    started+=("$STARTED")
}

# Prints the number of context switches of the daemon's threads.
wakeups() { awk '/ctxt_switches/ { n += $2 } END { print n }' "/proc/$DAEMON/task/"*/status; }

gone() { ! [ -d "/proc/$1" ] || [[ $(cat "/proc/$1/stat" 2>/dev/null) =~ ^[0-9]+\ .*\)\ [ZX] ]]; }

end_process() { # PID
    {
        kill -9 "$1"
        wait "$1"
    } 2>/dev/null
    return 0
}

# partner NAME COMMAND…: a process that does what it is asked for, a line `ID REQUEST` each, answered by `ID ANSWER`.
partner() {
    local name=$1 in out writer reader
    shift
    in=$TEST_DIR/actor.$name.in out=$TEST_DIR/actor.$name.out
    rm -f "$in" "$out"
    mkfifo "$in" "$out"
    "$@" <"$in" >"$out" 2>>"$TEST_DIR/actor.$name.err" &
    actor_pid[$name]=$!
    started+=("$!")
    exec {writer}>"$in" {reader}<"$out"
    actor_in[$name]=$writer actor_out[$name]=$reader
}

# actor NAME [PREFIX COMMAND…]: a partner that makes system calls (actor.py).
actor() {
    local name=$1
    shift
    [ -n "$PYTHON" ] || skip_all "no python3"
    partner "$name" "$@" "$PYTHON" -S -E "$TEST_DIR/actor.py" "$MNT"
    [ "$(ask "$name" '"here"')" = here ] || { say "actor $name did not start"; cat "$TEST_DIR/actor.$name.err" >&2; exit 1; }
}

tell() { # NAME EXPRESSION
    printf '0 %s\n' "$2" >&"${actor_in[$1]}"
}

hear() { # NAME [SECONDS]
    local id reply
    read -r -t "${2:-20}" id reply <&"${actor_out[$1]}" || { echo TIMEOUT; return; }
    : "$id"
    printf '%s\n' "$reply"
}

# ask NAME EXPRESSION: its answer: the value, `ok` for none, or the errno's name.
ask() {
    local mine=$SRANDOM id reply
    printf '%s %s\n' "$mine" "$2" >&"${actor_in[$1]}"
    while read -r -t "${ASK_LIMIT:-20}" id reply <&"${actor_out[$1]}"; do
        [ "$id" = "$mine" ] && { printf '%s\n' "$reply"; return; }
    done
    echo TIMEOUT
}

# says NAME EXPRESSION PATTERN: the answer matches.
says() {
    local reply
    reply=$(ask "$1" "$2")
    # shellcheck disable=SC2053 # a pattern is meant
    if [[ $reply == $3 ]]; then pass; else fail "$1: $2: got '$reply', not '$3'"; fi
}

answers() { # NAME EXPRESSION PATTERN, silently: a condition for `eventually`
    # shellcheck disable=SC2053 # a pattern is meant
    [[ $(ask "$1" "$2") == $3 ]]
}

quiet() { ! read -r -t 0 -u "${actor_out[$1]}"; } # NAME: it has not answered yet

# end_actor NAME: kill -9.
end_actor() {
    local fd
    end_process "${actor_pid[$1]}"
    fd=${actor_in[$1]} && exec {fd}>&-
    fd=${actor_out[$1]} && exec {fd}<&-
    unset "actor_pid[$1]" "actor_in[$1]" "actor_out[$1]"
}

# --- mounts ---

device_of() { timeout -s KILL 10 stat -c %d "$1" 2>/dev/null; }

answering() { # MOUNTPOINT
    local device
    # the kernel may know the attributes of a mount whose daemon is dead, but not this
    timeout -s KILL 10 stat -f "$1/." >/dev/null 2>&1 || return
    device=$(device_of "$1/.") && [ "$device" != "$(stat -c %d "$1/..")" ]
}

# Is this device still mounted here?
mounted_as() { # MOUNTPOINT DEVICE
    local major=$(($2 >> 8 & 0xfff)) minor=$(($2 & 0xff | $2 >> 12 & 0xfff00))
    awk -v point="$1" -v device="$major:$minor" '$5 == point && $3 == device { found = 1 } END { exit !found }' \
        /proc/self/mountinfo
}

ready_or_ended() { answering "$1" || gone "$2"; }

# remember MOUNTPOINT PID LOG: a mount that this test has made.
remember() {
    mount_points+=("$1")
    mount_devices+=("$(device_of "$1/.")")
    mount_daemons+=("$2")
    mount_logs+=("$3")
    printf '%s\n' "$2" >>"$TEST_DIR/daemons"
}

new_mountpoint() {
    MNT=$TEST_DIR/mnt.${#mount_points[@]}
    mkdir -p "$MNT"
}

# mount_backend BACKEND [OPTIONS [PREFIX COMMAND…]]: a daemon in the foreground; sets MNT, DAEMON and LOG.
mount_backend() {
    local backend=$1 options=${2:-}
    shift $(($# > 2 ? 2 : $#))
    new_mountpoint
    mount_at "$MNT" "$backend" "$options" "$@"
}

# DAEMON_PROGRAM is LEASEFS, or LEASEFS_OTHER for every second mount point.
declare -A mount_programs=()
choose_program() { # MOUNTPOINT
    DAEMON_PROGRAM=$LEASEFS
    [ -n "${LEASEFS_OTHER:-}" ] || return 0
    if [ -z "${mount_programs[$1]:-}" ]; then
        mount_programs[$1]=$LEASEFS
        [ $((${#mount_programs[@]} % 2)) = 1 ] || mount_programs[$1]=$LEASEFS_OTHER
    fi
    DAEMON_PROGRAM=${mount_programs[$1]}
}

mount_at() { # MOUNTPOINT BACKEND OPTIONS [PREFIX COMMAND…]
    local backend=$2 options=$3
    MNT=$1
    shift 3
    [[ $backend != zookeeper:* || $options == *state=* ]] || options=${options:+$options,}state=$TEST_DIR/state
    LOG=$TEST_DIR/log.${#mount_points[@]}
    choose_program "$MNT"
    "$@" "$DAEMON_PROGRAM" -f ${options:+-o "$options"} "$backend" "$MNT" >"$LOG" 2>&1 &
    DAEMON=$!
    started+=("$DAEMON")
    if ! eventually 20 ready_or_ended "$MNT" "$DAEMON" || gone "$DAEMON"; then
        say "leasefs -f -o '$options' $backend did not come up:"
        sed 's/^/# /' "$LOG"
        exit 1
    fi
    remember "$MNT" "$DAEMON" "$LOG"
}

# mount_both URI OPTIONS: two mounts of a server stand for two hosts: MOUNT_A, LOG_A, DAEMON_A and B; MNT is MOUNT_A.
mount_both() {
    # shellcheck disable=SC2034 # for the tests
    mount_backend "$1" "$2" && MOUNT_B=$MNT LOG_B=$LOG DAEMON_B=$DAEMON
    # shellcheck disable=SC2034
    mount_backend "$1" "$2" && MOUNT_A=$MNT LOG_A=$LOG DAEMON_A=$DAEMON
}

# on MOUNTPOINT COMMAND…: with MNT that one.
on() {
    local MNT=$1
    shift
    "$@"
}

# BACKEND is what was mounted, to mount it again with mount_at.  With E2E_STORE=redis both are a mount of a Redis server, one for each DIRECTORY.
mount_memory() { mount_store "" "${1:-}"; }
mount_local() { mount_store "$1" "${2:-}"; } # DIRECTORY [OPTIONS]

declare -A store_servers=()
mount_store() { # DIRECTORY OPTIONS
    if [ "${E2E_STORE:-}" != redis ]; then
        BACKEND=${1:+local:$1}
        mount_backend "${BACKEND:=memory}" "$2"
        return
    fi
    if [ -n "$1" ] && [ -n "${store_servers[$1]:-}" ]; then
        redis_use "${store_servers[$1]}"
    else
        redis_start
        [ -z "$1" ] || store_servers[$1]=$REDIS
    fi
    BACKEND=$REDIS_URI
    mount_redis "timeout=30s,command_timeout=10s${2:+,$2}" # the scripts ask nothing about a server that is away
}

mount_index() {
    local i
    for ((i = ${#mount_points[@]} - 1; i >= 0; i--)); do
        [ "${mount_points[i]}" = "$1" ] && { INDEX=$i; return; }
    done
    return 1
}

# unmount MOUNTPOINT: and the daemon ends, with status 0 (which only a parent can know).
unmount() {
    local i status=0 pid parent
    mount_index "$1" || return 1
    i=$INDEX pid=${mount_daemons[i]}
    parent=$(ps -o ppid= -p "$pid")
    if mounted_as "$1" "${mount_devices[i]}"; then umount "$1" 2>/dev/null || umount -l "$1"; fi
    if ! eventually 20 gone "$pid" && grep -qs " $1 " /proc/[0-9]*/mountinfo; then
        say "$1 is still mounted in a mount namespace that somebody has made meanwhile"
        kill -TERM "$pid"
    fi
    if ! eventually 20 gone "$pid"; then
        fail "the daemon of $1 did not end when it was unmounted"
        say "it waits in: $(cat "/proc/$pid"/task/*/wchan 2>&1)"
        tail -10 "${mount_logs[i]}" | sed 's/^/# /'
        end_process "$pid"
        status=1
    elif [ "${parent// /}" = $$ ]; then
        wait "$pid" || status=$?
        [ "$status" -eq 0 ] || { fail "the daemon ended with status $status:"; tail -40 "${mount_logs[i]}" | sed 's/^/# /'; }
    fi
    mount_daemons[i]=
    return "$status"
}

# crash MOUNTPOINT: kill -9 for the daemon, and the dead mount is taken away.
crash() {
    local i
    mount_index "$1" || return 1
    i=$INDEX
    end_process "${mount_daemons[i]}"
    mounted_as "$1" "${mount_devices[i]}" && umount -l "$1"
    mount_daemons[i]=
}

# Is that pid still a process of this test?  One that has ended may have given its number to another test's.
is_own() { # PID
    [[ $(cat "/proc/$1/stat") =~ ^[0-9]+\ .*\)\ .\ ([0-9]+)\  ]] || return 1
    [ "${BASH_REMATCH[1]}" = $$ ] || tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF "$TEST_DIR"
}

cleanup() {
    local i pid
    trap - EXIT
    [ -z "${regular:-}" ] || sysctl -q -w "fs.protected_regular=$regular"
    exec 2>/dev/null # bash would tell of each process that it was killed
    kill "$watchdog"
    for pid in "${actor_pid[@]}"; do ! is_own "$pid" || kill -9 "$pid"; done
    for i in "${!mount_points[@]}"; do
        if [ -n "${mount_devices[i]}" ] && mounted_as "${mount_points[i]}" "${mount_devices[i]}"; then
            umount -l "${mount_points[i]}"
        fi
    done
    for pid in "${started[@]}" $(pgrep -f "$TEST_DIR/actor.py"); do ! is_own "$pid" || kill -9 "$pid"; done # and their forks
    wait
    remove_scratch
}

# rm looks into a bind mount as into any directory of that disk, and --one-file-system does not
# stop it there: what is still mounted below is taken away first, or nothing is deleted.
remove_scratch() {
    local point
    while read -r point; do umount -l "$(printf %b "$point")"; done < <(mounts_below | tac)
    if [ -n "${E2E_KEEP:-}" ]; then
        say "kept: $TEST_DIR"
    elif [ -n "$(mounts_below)" ]; then
        say "kept, as there are mounts in it: $TEST_DIR"
    else
        rm -rf --one-file-system "$TEST_DIR"
    fi
}

# As mountinfo writes them: a space is \040.
mounts_below() {
    awk -v top="$TEST_DIR/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo
}

on_exit() {
    local status=$?
    cleanup
    if [ "$finished" = no ]; then
        printf 'Bail out! the test ended early, with status %d\n' "$status"
        exit 99
    fi
    exit "$status"
}

# Ends a script that hangs: first its daemons, so that no system call stays stuck, then itself.
watch_over() {
    local sleeper pid
    trap 'kill "$sleeper" 2>/dev/null; exit' TERM
    sleep "${E2E_LIMIT:-240}" &
    sleeper=$!
    wait "$sleeper"
    while read -r pid; do kill -9 "$pid" 2>/dev/null; done <"$TEST_DIR/daemons"
    kill "$1"
}

# --- begin ---

if [ -z "${LEASEFS:-}" ]; then
    if [ -x ./leasefs ]; then LEASEFS=./leasefs; else LEASEFS=$(command -v leasefs); fi || skip_all "no leasefs binary: set LEASEFS"
fi
LEASEFS=$(readlink -f "$LEASEFS")
[ -x "$LEASEFS" ] || skip_all "LEASEFS names no program: $LEASEFS"
[ -c /dev/fuse ] || skip_all "no /dev/fuse"
[ "$(id -u)" -eq 0 ] || skip_all "needs root"
command -v getfattr >/dev/null || skip_all "no getfattr (package attr)"

# Below it are sockets, whose names are short, and mount points, which fstab and mount tables write in their own way where
# they are not plain: such a TMPDIR is not for this.
[[ ${TMPDIR:-} =~ ^/[A-Za-z0-9_./-]{0,50}$ ]] || export TMPDIR=/tmp
TEST_DIR=$(mktemp -d "$TMPDIR/leasefs-e2e.XXXXXX")
chmod 755 "$TEST_DIR"
umask 022 # tests say so where they mean another
: >"$TEST_DIR/daemons"
mkdir -m 1777 "$TEST_DIR/sanitizer"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$TEST_DIR/sanitizer/asan"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$TEST_DIR/sanitizer/ubsan"
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}die_after_fork=0:exitcode=0:log_path=$TEST_DIR/sanitizer/tsan"
install -m 644 "$E2E_DIR/actor.py" "$TEST_DIR" # other users cannot read every checkout
mkfifo "$TEST_DIR/never"
exec {never}<>"$TEST_DIR/never"
watchdog=
trap on_exit EXIT
trap 'exit 99' INT TERM HUP
trap : PIPE # an actor that died makes its case fail, not the whole test
watch_over $$ >/dev/null 2>&1 </dev/null &
watchdog=$!

# shellcheck source=redis.sh
[ "${E2E_STORE:-}" != redis ] || . "${BASH_SOURCE%/*}/redis.sh"
