#!/bin/bash
# The owner of a lease that was taken through a wrapper: each way to run touch, at a prompt and in a script, where all
# goes well and where the script crashes in its first second.  The table is printed at the end.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v sudo >/dev/null || skip_all "no sudo"
command -v tini >/dev/null || skip_all "no tini"

# Newer sudos run every command on a terminal of its own; here env is one.
SUDOERS=/etc/sudoers.d/leasefs-test-$$
leave() {
    local status=$?
    rm -f "$SUDOERS"
    (exit "$status")
    on_exit
}
trap leave EXIT
(umask 337 && echo "Defaults!$(command -v env) use_pty" >"$SUDOERS")

TTL=1500
mount_memory ttl=1500ms
export L M

# What a person types for "take the lock L"; M is another lock.
declare -A wrapper=(
    [touch]='touch $L'
    [subshell]='(touch $L; true)'
    [substitution]='r=$(touch $L)'
    [noclobber]='set -C; : >$L; set +C'
    [sudo]='sudo -n -E touch $L'
    [sudo_pty]='sudo -n -E env touch $L'
    [timeout]='timeout 5 touch $L'
    [xargs]='echo $L | xargs touch'
    [find]='find / -maxdepth 0 -exec touch $L \;'
    [su]='su -c "touch $L"'
    [runuser]='runuser -u root -- touch $L'
    [setsid]='setsid -w touch $L'
    [script]='script -qec "touch $L" /dev/null >/dev/null </dev/null'
    [flock]='flock $M touch $L'
    [python]='python3 -c "import subprocess, sys; subprocess.run([\"touch\", sys.argv[1]], check=True)" $L'
    [make]='make -s -f $TEST_DIR/Makefile'
    [nested]='sh -c "timeout 5 sh -c \"touch $L; true\"; true"'
)
names=($(printf '%s\n' "${!wrapper[@]}" | sort))
printf 'all:\n\t@touch $(L); true\n' >"$TEST_DIR/Makefile"
export TEST_DIR

declare -A verdict=()
owner_pid() {
    local host pid rest
    read -r host pid rest <<<"$(attribute "$1" owner)"
    : "$host" "$rest"
    echo "$pid"
}
all_there() {
    local name
    for name in "${names[@]}"; do exists "$1.$name" || { say "$1.$name is gone"; return 1; }; done
}
all_gone() {
    local name
    for name in "${names[@]}"; do absent "$1.$name" || return 1; done
}
note() { # PLACE VERDICT…: of each wrapper
    local name
    for name in "${names[@]}"; do
        if exists "$1.$name"; then verdict[$name.$1]=$2; else verdict[$name.$1]=$3; fi
    done
}

# A line for each wrapper, as it is typed, and then the shell stays.
lines() { # PLACE
    local name
    for name in "${names[@]}"; do
        printf 'L=%s/%s.%s M=%s/m.%s.%s; export L M; %s\n' "$MNT" "$1" "$name" "$MNT" "$1" "$name" "${wrapper[$name]}"
    done
}

it "at a prompt, with job control, the shell keeps what each wrapper took, and the locks end with it"
{
    printf 'await [$#] \n'
    lines prompt | while IFS= read -r line; do
        printf 'send %s\\n\nawait [$#] \n' "${line//\\/\\\\}"
    done
    printf 'send echo $$ >%s\\n\n' "$TEST_DIR/prompt"
    printf 'send cat %s\\n\nawait no such text\n' "$TEST_DIR/never"
} >"$TEST_DIR/typed"
# tini reaps at once what is left behind, as a machine's init does: only then the kernel tells how it ended.
"$PYTHON" "$E2E_DIR/terminal.py" tini -s -- bash --norc --noprofile -i <"$TEST_DIR/typed" >"$TEST_DIR/terminal" 2>&1 &
terminal=$!
started+=("$terminal")
expect eventually 15 [ -s "$TEST_DIR/prompt" ]
read -r shell <"$TEST_DIR/prompt"
expect all_there prompt
pause 1.3
for name in "${names[@]}"; do expect_is "$(owner_pid "prompt.$name")" "$shell" "owner of $name"; done
expect constantly $((2 * TTL)) all_there prompt
note prompt kept LOST
end_process "$terminal"
expect eventually 5 gone "$shell"
expect eventually $(((TTL + SLACK) / 1000 + 3)) all_gone prompt

it "in a script the script keeps what each wrapper took, and the locks end with it"
lines script >"$TEST_DIR/script"
printf 'echo $$ >"%s"; read -r _ <"%s"\n' "$TEST_DIR/script.pid" "$TEST_DIR/never" >>"$TEST_DIR/script"
start bash "$TEST_DIR/script"
script=$STARTED
expect eventually 15 [ -s "$TEST_DIR/script.pid" ]
pause 1.3
for name in "${names[@]}"; do expect_is "$(owner_pid "script.$name")" "$script" "owner of $name"; done
expect constantly $((2 * TTL)) all_there script
note script kept LOST
end_process "$script"
expect eventually $(((TTL + SLACK) / 1000 + 3)) all_gone script

# From Linux 6.15 the kernel tells how a process ended.
has_exit_status() { local IFS=.-; read -r major minor _ <<<"$(uname -r)"; [ "$major" -gt 6 ] || { [ "$major" -eq 6 ] && [ "$minor" -ge 15 ]; }; }

name="a script that crashes in its first second leaves nothing to the prompt or script that started it"
if has_exit_status; then
    it "$name"
    {
        for name in "${names[@]}"; do
            printf 'L=%s/crash.%s M=%s/m.crash.%s bash -c '\''%s; exit 3'\''\n' "$MNT" "$name" "$MNT" "$name" "${wrapper[$name]}"
            printf 'L=%s/killed.%s M=%s/m.killed.%s bash -c '\''%s; kill -9 $$'\''\n' "$MNT" "$name" "$MNT" "$name" "${wrapper[$name]}"
        done
        printf 'echo >"%s"; read -r _ <"%s"\n' "$TEST_DIR/crashed" "$TEST_DIR/never"
    } >"$TEST_DIR/crash"
    start bash "$TEST_DIR/crash" 2>"$TEST_DIR/crash.err"
    expect eventually 20 [ -s "$TEST_DIR/crashed" ]
    expect eventually $(((TTL + SLACK) / 1000 + 3)) all_gone crash
    expect eventually $(((TTL + SLACK) / 1000 + 3)) all_gone killed
    note crash HELD freed
    note killed HELD freed
    expect kill -0 "$STARTED"
else
    left_out "$name" "on Linux 6.15"
fi

# adopted COMMAND…: run by a child of pid 1 in a session of its own, as systemd runs a service.
adopted() { setsid -f bash -c 'echo $$ >"$0"; "$@"; read -r _ <"$TEST_DIR/never"' "$TEST_DIR/adopted" "$@" </dev/null >/dev/null 2>&1; }
service() { # NAME COMMAND…
    local name=$1
    rm -f "$TEST_DIR/adopted"
    adopted "${@:2}"
    expect eventually 10 [ -s "$TEST_DIR/adopted" ]
    SERVICE=$(cat "$TEST_DIR/adopted")
    started+=("$SERVICE")
    expect eventually 10 exists "$name"
}

it "the main script of a service, a child of pid 1, keeps what its wrappers took"
service service.touch touch "$MNT/service.touch"
service service.timeout timeout 5 touch "$MNT/service.timeout"
service service.shell sh -c "touch $MNT/service.shell; true"
expect constantly $((TTL + 1300)) eval 'exists service.touch && exists service.timeout && exists service.shell'
verdict[touch.service]=kept verdict[timeout.service]=kept verdict[subshell.service]=kept

it "a service that runs jobs in sessions of their own, as cron and sshd do, does not inherit from their helpers"
service cron.job setsid -w bash -c "touch $MNT/cron.job; exit 0"
service sshd.command setsid -w bash -c "timeout 5 touch $MNT/sshd.command; true"
[ "$(ps -o ppid= -p "$SERVICE" | tr -d ' ')" = 1 ] || say "a subreaper adopts orphans here"
expect eventually $(((TTL + SLACK) / 1000 + 3)) absent cron.job
expect eventually $(((TTL + SLACK) / 1000 + 3)) absent sshd.command
expect kill -0 "$SERVICE"
verdict[touch.cron]=freed verdict[timeout.sshd]=freed

it "under tini a script keeps what its wrappers took while it lives, and no longer"
start tini -s -- bash -c "timeout 5 touch $MNT/tini.kept; read -r _ <$TEST_DIR/never"
expect eventually 10 exists tini.kept
expect constantly $((TTL + 1300)) exists tini.kept
end_process "$STARTED"
pkill -9 -f "touch $MNT/tini.kept"
expect eventually $(((TTL + SLACK) / 1000 + 3)) absent tini.kept
tini -s -- bash -c "touch $MNT/tini.crash; exit 3"
verdict[timeout.tini]=kept
if has_exit_status; then
    expect eventually $(((TTL + SLACK) / 1000 + 3)) absent tini.crash
    verdict[touch.tini_crash]=freed
fi

it "the log tells whose lease ran out though nothing had failed, and what helps"
start bash -c "touch $MNT/forgotten; sleep 1.3"
expect eventually 5 exists forgotten
expect eventually 10 absent forgotten
expect eventually 5 grep -q "forgotten: lease expired: its owner, .* exited without removing it. .*leaserun LOCK COMMAND" "$LOG"

it "that is a notice, and a crash is not"
mount_memory ttl=500ms,log=notice
start bash -c "touch $MNT/crashed; sleep 1.3; kill -9 \$\$"
start bash -c "touch $MNT/forgotten; sleep 1.3"
for name in crashed forgotten; do expect eventually 5 exists $name; done
for name in crashed forgotten; do expect eventually 10 absent $name; done
expect eventually 5 grep -q "forgotten: lease expired: its owner, .* exited without removing it. .*leaserun LOCK COMMAND" "$LOG"
! has_exit_status || expect_not grep -q "crashed:" "$LOG"

say "$(printf '%-14s %-8s %-8s %-10s %-10s' wrapper prompt script 'exits 3' 'kill -9')"
for name in "${names[@]}"; do
    say "$(printf '%-14s %-8s %-8s %-10s %-10s' "$name" "${verdict[$name.prompt]:--}" "${verdict[$name.script]:--}" "${verdict[$name.crash]:--}" "${verdict[$name.killed]:--}")"
done
for name in "${!verdict[@]}"; do
    [[ $name == *.@(prompt|script|crash|killed) ]] || say "$(printf '%-30s %s' "$name" "${verdict[$name]}")"
done
finish
