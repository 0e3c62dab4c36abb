#!/bin/bash
# leaserun(1): a command that runs while a lock is held, and not any longer.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
mount_memory ttl=2

keeper_of() { attribute "$1" owner | cut -d' ' -f2; } # LOCK
parent_of() { ps -o ppid= -p "$1" | tr -d ' '; }
stopped() { [[ $(cat "/proc/$1/stat") =~ ^[0-9]+\ .*\)\ T ]]; }
in_dir() { cd "$TEST_DIR" && "$@"; }

it "the command runs with the lock held, which is free when leaserun returns"
gives 0 "$MNT/a" -- sh -c "[ -e '$MNT/a' ] && ! flock -n '$MNT/a' true && getfattr -n user.lease.kind '$MNT/a'"
said 'kind="flock"'
expect absent a

it "the exit status is the command's, or 128 and the signal that ended it"
gives 7 "$MNT/a" -- sh -c 'exit 7'
gives 0 "$MNT/a" sh -c 'exit 0'
gives 137 "$MNT/a" -- sh -c 'kill -KILL $$'
gives 143 "$MNT/a" -- sh -c 'kill -TERM $$'
expect absent a

it "a command that is not there gives 127, one that cannot be executed 126; the lock is free again"
gives 127 "$MNT/a" -- "$TEST_DIR/none"
said 'failed to execute .*No such file'
gives 126 "$MNT/a" -- "$TEST_DIR"
said 'failed to execute .*Permission denied'
gives 127 "$MNT/a" -n -- true
said 'failed to execute -n: there is no such command; options stand before the lock'
expect absent a

it "LEASE_NAME is the lock's absolute path, LEASE_TOKEN its current fencing token"
cd "$MNT" || exit 1
gives 0 a -- sh -c 'echo "$LEASE_NAME"; setfattr -n user.lease.check -v "$LEASE_TOKEN" "$LEASE_NAME" && echo current'
cd / || exit 1
said "^$MNT/a\$"
said '^current$'
gives 0 "$MNT/../${MNT##*/}/a" -- sh -c 'echo "$LEASE_NAME"'
said "^$MNT/a\$"

it "what it reads, writes and inherits: standard input and output pass; the lock's descriptor does not"
expect_is "$(echo text | "$LEASERUN" "$MNT/a" -- cat)" text
gives 0 "$MNT/a" -- sh -c "ls -l /proc/\$\$/fd | grep -c '$MNT' || :"
said '^0$'
gives 0 -o "$MNT/a" -- true
expect_is "$(seq 100000 | "$LEASERUN" "$MNT/a" -- cat | tail -1)" 100000

it "what the command leaves behind in the background keeps neither the lock nor leaserun"
gives 0 "$MNT/a" -- sh -c 'sleep 60 >/dev/null 2>&1 & echo $!'
expect absent a
LEFT=$(cat "$OUT")
expect_not gone "$LEFT"
kill "$LEFT"

# --- waiting ---

it "-n and -w 0 do not wait; -w waits at most so long; -E gives the status for that"
exec 9<>"$MNT/b"
flock 9
gives 1 -n "$MNT/b" -- echo ran
gives 1 -w 0 "$MNT/b" -- echo ran
gives 5 -n -E 5 "$MNT/b" -- echo ran
now
T=$NOW
gives 6 --timeout 0.3 --conflict-exit-code 6 "$MNT/b" -- echo ran
now
expect_between 290 $((NOW - T)) $((300 + SLACK)) "milliseconds waited"
expect_not grep -q ran "$OUT"
gives 1 -v -w 100ms "$MNT/b" -- echo ran
said 'not free in time'
gives 1 -v -n "$MNT/b" -- echo ran
said ": held by $(uname -n):$$ .*, for [0-9.]*s\$"
expect eventually 5 waiters b 0

it "without these it waits its turn, and is granted in the order of asking"
: >"$TEST_DIR/order"
for i in 1 2 3 4 5; do
    begin "$MNT/b" -- sh -c "echo $i >>'$TEST_DIR/order'"
    expect eventually 5 waiters b "$i"
done
begin -w 60 "$MNT/b" -- true
expect eventually 5 waiters b 6
flock -u 9
ended 0
expect_is "$(tr '\n' ' ' <"$TEST_DIR/order")" "1 2 3 4 5 "
exec 9>&-

it "-s shares the lock with others that share it, and excludes who does not"
begin -s "$MNT/b" -- sh -c "echo \$\$ >'$TEST_DIR/shares'; exec sleep 60"
expect eventually 5 mark shares
gives 0 -n -s "$MNT/b" -- getfattr --only-values -n user.lease.mode "$MNT/b"
said shared
gives 1 -n "$MNT/b" -- true
kill -TERM "$RUNNER"
ended 143
expect absent b

it "a lease that another took with touch is waited for"
actor A
says A 'acquire("b")' ok
gives 1 -n "$MNT/b" -- true
begin "$MNT/b" -- true
expect eventually 5 waiters b 1
says A 'rm("b")' ok
ended 0

it "a lock that is held as a symbolic link is refused: it cannot be opened"
says A 'ln("elsewhere", "b")' ok
gives 1 -n "$MNT/b" -- true
gives 66 "$MNT/b" -- true
said 'symbolic link'
says A 'rm("b")' ok

it "a signal ends the wait, and the place in the queue"
says A 'acquire("b")' ok
for signal in INT TERM HUP; do
    # not by `&` alone: that ignores SIGINT
    "$PYTHON" -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
        "$LEASERUN" "$MNT/b" -- true &
    RUNNER=$!
    started+=("$RUNNER")
    expect eventually 5 waiters b 1
    kill -"$signal" "$RUNNER"
    ended $((128 + $(kill -l "$signal")))
    expect eventually 5 waiters b 0
done
begin "$MNT/b" -- true
expect eventually 5 waiters b 1
kill -KILL "$RUNNER"
ended 137
expect eventually 5 waiters b 0
says A 'rm("b")' ok

# --- the command line ---

it "what is wrong with the command line is told, with status 64"
for wrong in "" "$MNT/c" "-w x $MNT/c true" "-t 99ms $MNT/c true" "-t 1y $MNT/c true" "-k -1 $MNT/c true" "-E 256 $MNT/c true" \
    "-E x $MNT/c true" "--nonsense $MNT/c true" "-w"; do
    # shellcheck disable=SC2086 # words are meant
    gives 64 $wrong
    expect [ -s "$OUT" ]
done
for long in 3651d 315360001 99999999999999999999h; do
    gives 64 -t "$long" "$MNT/c" true
    said 'the longest time is 3650d'
done
for wrong in 3651x 99999999999999999999x; do
    gives 64 -t "$wrong" "$MNT/c" true
    said 'not a time'
done
gives 0 --help
said 'Usage: leaserun'
gives 0 --version
said '^leaserun [0-9]'
gives 1 "$MNT/c" -- sh -c 'exit 1' -w x

it "started with the standard files closed, it runs the command all the same, which finds them closed"
for option in -v -F; do
    expect "$LEASERUN" $option "$MNT/closed" sh -c 'ls /proc/self/fd/0 /proc/self/fd/1 || echo ran >"$1"' _ "$TEST_DIR/closed" \
        <&- >&- 2>&-
    expect_is "$(cat "$TEST_DIR/closed")" ran
    rm -f "$TEST_DIR/closed"
done
expect eventually 5 absent closed # -F: a moment after the command
STATUS=0
"$LEASERUN" --get "$MNT/closed" <&- >&- 2>&- || STATUS=$?
expect_is "$STATUS" 74
expect absent closed

it "a lock that is not in a leasefs gives 66, and no file is left there"
gives 66 "$TEST_DIR/file" -- true
said 'not in a leasefs'
expect_not [ -e "$TEST_DIR/file" ]
gives 66 "$MNT/none/c" -- true
said "^leaserun: $MNT/none: no such directory: correct its name, or make it with mkdir -p\$"
gives 66 "$MNT/c/" -- true

it "a -k that does not fit the lease is refused with the longest that does"
gives 64 -k 1 "$MNT/c" -- true
said 'at most -k 0.8'
gives 0 -k 0.8 "$MNT/c" -- true
gives 64 -t 10 -k 4.1 "$MNT/c" -- true
gives 0 -t 10 -k 4 "$MNT/c" -- true
gives 0 -k 0 "$MNT/c" -- true

it "-t sets how long the lock lasts without renewal"
gives 0 -t 7 "$MNT/c" -- getfattr --only-values -n user.lease.ttl "$MNT/c"
said '^7$'
gives 0 "$MNT/c" -- getfattr --only-values -n user.lease.ttl "$MNT/c"
said '^2$'

it "a lock is renewed for as long as the command runs"
gives 0 -t 1500ms "$MNT/c" -- sleep 4

# --- signals ---

it "signals are passed on to the command, all of it"
for signal in HUP INT QUIT TERM USR1 USR2 ALRM WINCH; do
    rm -f "$TEST_DIR/ready"
    # Python: a shell in the background ignores INT and QUIT for good
    "$PYTHON" -c 'import os, signal, sys
for s in signal.SIGINT, signal.SIGQUIT: signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$LEASERUN" "$MNT/d" -- "$PYTHON" -c "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIG$signal])
print('x', file=open('$TEST_DIR/ready', 'w'), flush=True)
signal.sigwait([signal.SIG$signal])
os._exit(42)" >/dev/null 2>&1 &
    RUNNER=$!
    started+=("$RUNNER")
    expect eventually 10 mark ready
    kill -"$signal" "$RUNNER"
    ended 42
done

it "a signal that was ignored for leaserun is ignored for the command"
(
    trap '' HUP
    exec "$LEASERUN" "$MNT/d" -- sh -c "echo x >'$TEST_DIR/nohup'; exec sleep 60"
) &
RUNNER=$!
started+=("$RUNNER")
expect eventually 5 mark nohup
kill -HUP "$RUNNER"
kill -TERM "$RUNNER"
ended 143

# --- re-entry ---

it "inside a leaserun of the same lock the command runs at once, and gives nothing back"
gives 3 "$MNT/e" -- sh -c "'$LEASERUN' -n '$MNT/e' -- sh -c 'exit 4'; [ \$? -eq 4 ] && [ -e '$MNT/e' ] &&
    setfattr -n user.lease.check -v \"\$LEASE_TOKEN\" '$MNT/e' && exit 3"

it "also two locks deep, and the innermost knows its own"
gives 0 "$MNT/e" -- "$LEASERUN" "$MNT/f" -- "$LEASERUN" -v "$MNT/e" -- \
    sh -c "echo in \$LEASE_NAME; setfattr -n user.lease.check -v \$LEASE_TOKEN '$MNT/e' && [ -e '$MNT/f' ]"
said 'held already'
said "in $MNT/e"
gives 0 "$MNT/e" -- "$LEASERUN" "$MNT/f" -- "$LEASERUN" "$MNT/e" -- "$LEASERUN" -n "$MNT/f" -- true

it "a token that is no longer current gives nothing"
exec 9<>"$MNT/e"
flock 9
LEASE_NAME=$MNT/e LEASE_TOKEN=1 gives 1 -n "$MNT/e" -- true
exec 9>&-
LEASE_NAME=$MNT/e LEASE_TOKEN=1 gives 0 -n "$MNT/e" -- sh -c '[ "$LEASE_TOKEN" != 1 ]'

it "who shares may share again inside, but not exclude"
gives 0 -s "$MNT/e" -- "$LEASERUN" -n -s "$MNT/e" -- true
gives 64 -s "$MNT/e" -- "$LEASERUN" "$MNT/e" -- true
said 'use -s here'
gives 0 "$MNT/e" -- "$LEASERUN" -s "$MNT/e" -- true

# --- queues ---

it "a directory is a queue: as many commands run at once as it is wide"
mkdir "$MNT/q"
setfattr -n user.lease.width -v 2 "$MNT/q"
begin "$MNT/q" -- sh -c "echo \$LEASE_NAME >'$TEST_DIR/first'; exec sleep 60"
FIRST=$RUNNER
begin "$MNT/q/" -- sh -c "echo \$LEASE_NAME >'$TEST_DIR/second'; exec sleep 60"
SECOND=$RUNNER
expect eventually 5 mark first
expect eventually 5 mark second
expect_re "$(cat "$TEST_DIR/first")" "^$MNT/q/run-[0-9]{10}$"
tickets() { find "$MNT/q" -type f | wc -l; }
for _ in {1..20}; do
    gives 1 -n "$MNT/q" -- true
    expect_is "$(tickets)" 2 "tickets when leaserun -n has ended"
done
gives 1 -w 0.1 "$MNT/q" -- true
expect_is "$(tickets)" 2
begin "$MNT/q" -- true
expect eventually 5 waiters q 1
kill -TERM "$FIRST"
ended 0
gives 0 -n "$MNT/q" -- "$LEASERUN" -n "$MNT/q" -- sh -c "setfattr -n user.lease.check -v \$LEASE_TOKEN \$LEASE_NAME"
kill -TERM "$SECOND"
RUNNER=$SECOND
ended 143
expect rmdir "$MNT/q"

it "a name that ends in - is a place in its directory's queue"
mkdir "$MNT/q"
gives 0 "$MNT/q/job-" -- sh -c "ls '$MNT/q'"
said '^job-0000000000$'
expect rmdir "$MNT/q"

# --- losing ---

# A command that notes when it has ended: all of it ignores TERM.
cat >"$TEST_DIR/stubborn" <<'SCRIPT'
#!/bin/bash
trap '' TERM INT HUP
setsid bash -c 'trap "" TERM; echo $$ >"$0/daemon"; while :; do read -t 0.05 <>/dev/zero; done' "$1" &
(trap '' TERM; while :; do read -t 0.05 <>/dev/zero; done) &
echo $! >"$1/sibling"
until [ -s "$1/daemon" ]; do :; done
echo $$ >"$1/stubborn"
while :; do read -t 0.05 <>/dev/zero; done
SCRIPT
chmod +x "$TEST_DIR/stubborn"
begin_stubborn() { # ARGUMENT…
    rm -f "$TEST_DIR/stubborn.pid" "$TEST_DIR/daemon" "$TEST_DIR/sibling" "$TEST_DIR"/run/*
    mkdir -p "$TEST_DIR/run"
    begin "$@" -- "$TEST_DIR/stubborn" "$TEST_DIR/run"
    expect eventually 10 mark run/stubborn
}
# watch_deaths, before what is to kill them; death_of_all sets DEATH, as `now` counts.
watch_deaths() {
    rm -f "$TEST_DIR/deaths"
    start "$PYTHON" -S -E "$E2E_DIR/deaths.py" "$(pid_of run/stubborn)" "$(pid_of run/sibling)" "$(pid_of run/daemon)" >"$TEST_DIR/deaths"
    expect eventually 10 [ -s "$TEST_DIR/deaths" ]
}
death_of_all() {
    are_dead() { [ "$(wc -l <"$TEST_DIR/deaths")" = 2 ]; }
    expect eventually 10 are_dead
    DEATH=$(tail -n 1 "$TEST_DIR/deaths")
}
all_dead() { gone "$(pid_of run/stubborn)" && gone "$(pid_of run/sibling)" && gone "$(pid_of run/daemon)"; }

it "when the lock is broken all that the command has started is killed, also what ignores signals and left the group"
begin_stubborn "$MNT/g"
expect_not all_dead
setfattr -n user.lease.break -v 1 "$MNT/g"
expect eventually 5 gone "$RUNNER"
expect all_dead
ended 75
expect grep -q 'lock is lost: it was broken' "$OUT.bg"
expect absent g

it "the same when it is released by its token, or removed"
begin_stubborn "$MNT/g"
setfattr -n user.lease.release -v "$(attribute g token)" "$MNT/g"
ended 75
expect all_dead
gives 75 "$MNT/g" -- sh -c "rm '$MNT/g'; exec sleep 60"

it "when it is broken the command gets TERM first, and has its time until another has the lock"
rm -f "$TEST_DIR/cleaned" "$TEST_DIR/ready"
begin -t 10 -k 2 "$MNT/g" -- sh -c "trap 'sleep 1; echo cleaned >\"$TEST_DIR/cleaned\"; exit 0' TERM; echo x >'$TEST_DIR/ready'; while :; do sleep 0.05; done"
expect eventually 5 mark ready
"$LEASERUN" "$MNT/g" -- grep -q cleaned "$TEST_DIR/cleaned" &
WAITER=$!
started+=("$WAITER")
expect eventually 5 waiters g 1
setfattr -n user.lease.break -v 1 "$MNT/g"
ended 75
expect wait "$WAITER"

it "what ignores that is killed after -k, and is dead before another has the lock"
begin_stubborn -t 10 -k 0.5 "$MNT/g"
"$LEASERUN" "$MNT/g" -- grep -qs ' [RSDT] ' "/proc/$(pid_of run/stubborn)/stat" "/proc/$(pid_of run/sibling)/stat" \
    "/proc/$(pid_of run/daemon)/stat" &
WAITER=$!
started+=("$WAITER")
expect eventually 5 waiters g 1
now
T=$NOW
setfattr -n user.lease.release -v "$(attribute g token)" "$MNT/g"
ended 75
now
expect_between 450 $((NOW - T)) $((500 + SLACK)) "milliseconds of grace"
expect_not wait "$WAITER"

it "a shared lock that is broken ends all that share it"
begin -s "$MNT/g" -- sh -c "echo x >'$TEST_DIR/share1'; exec sleep 60"
FIRST=$RUNNER
begin_stubborn -s "$MNT/g"
expect eventually 5 mark share1
setfattr -n user.lease.break -v 1 "$MNT/g"
ended 75
RUNNER=$FIRST
ended 75
expect all_dead

it "where a lost lock stays refused for a while, the command gets TERM first, and may clean up"
mkdir "$MNT/slow"
setfattr -n user.lease.delay -v 3 "$MNT/slow"
begin -t 3 "$MNT/slow/l" -- sh -c "trap 'echo cleaned >\"$TEST_DIR/cleaned\"; exit 0' TERM; echo x >'$TEST_DIR/slow'; while :; do sleep 0.05; done"
expect eventually 5 mark slow
setfattr -n user.lease.break -v 1 "$MNT/slow/l"
ended 75
expect_is "$(cat "$TEST_DIR/cleaned")" cleaned

it "and KILL after -k, before another can have it"
expect eventually 10 flock -n "$MNT/slow/l" true
begin_stubborn -t 3 -k 0.5 "$MNT/slow/l"
setfattr -n user.lease.break -v 1 "$MNT/slow/l"
now
T=$NOW
expect eventually 5 gone "$RUNNER"
now
expect_between 450 $((NOW - T)) $((500 + SLACK)) "milliseconds of grace"
expect all_dead
ended 75

it "when the daemon is killed the command is killed at once"
mount_memory ttl=30
begin_stubborn "$MNT/h"
now
T=$NOW
crash "$MNT"
expect eventually 5 gone "$RUNNER"
now
expect_between 0 $((NOW - T)) "$SLACK" "milliseconds until it ended"
expect all_dead
ended 75
expect grep -q 'daemon of the leasefs has ended' "$OUT.bg"

it "when the lock is not renewed, because the daemon hangs, the command is dead before it would end"
mount_memory ttl=3
begin_stubborn "$MNT/i"
watch_deaths
kill -STOP "$DAEMON"
now
T=$NOW # at most 3 s are left
death_of_all
expect_between 0 $((DEATH - T)) 2990 "milliseconds until all of it was dead"
ended 75
expect grep -q 'about to be lost: it is not renewed' "$OUT.bg"
kill -CONT "$DAEMON"

it "with time to clean up, when it does"
rm -f "$TEST_DIR/cleaned" "$TEST_DIR/ready"
begin "$MNT/i" -- sh -c "trap 'echo cleaned >\"$TEST_DIR/cleaned\"; exit 0' TERM; echo x >'$TEST_DIR/ready'; while :; do sleep 0.05; done"
expect eventually 5 mark ready
kill -STOP "$DAEMON"
expect eventually 5 mark cleaned
ended 75
kill -CONT "$DAEMON"

it "a daemon that hangs for less than that does no harm"
begin "$MNT/i" -- sh -c "echo x >'$TEST_DIR/short'; sleep 3; exit 9"
expect eventually 5 mark short
for _ in 1 2 3; do
    kill -STOP "$DAEMON"
    pause 0.4
    kill -CONT "$DAEMON"
    pause 0.4
done
ended 9

it "when leaserun is killed its command is killed, before the lock is given back"
begin_stubborn "$MNT/j"
"$LEASERUN" "$MNT/j" -- grep -qs ' [RSDT] ' "/proc/$(pid_of run/stubborn)/stat" "/proc/$(pid_of run/sibling)/stat" \
    "/proc/$(pid_of run/daemon)/stat" &
WAITER=$!
started+=("$WAITER")
expect eventually 5 waiters j 1
kill -KILL "$RUNNER"
ended 137
expect_not wait "$WAITER" # it has seen none of them alive
expect all_dead

it "when the process that keeps the lock is killed the command is killed"
begin_stubborn "$MNT/j"
kill -KILL "$(keeper_of j)"
ended 75
expect all_dead
expect grep -q 'process that kept it was killed' "$OUT.bg"

it "when the process that watches over the command is killed the command is killed, and the lock is free after"
begin_stubborn "$MNT/j"
WATCHDOG=$(parent_of "$(pid_of run/stubborn)")
expect_is "$(parent_of "$WATCHDOG")" "$RUNNER"
kill -KILL "$WATCHDOG"
ended 75
expect all_dead
expect grep -q 'watches over the command was killed' "$OUT.bg"
expect absent j

it "when leaserun and that process are both killed the command's group is killed, and the lock is free"
begin_stubborn "$MNT/j"
kill -KILL "$RUNNER" "$(parent_of "$(pid_of run/stubborn)")"
ended 137
expect eventually 5 gone "$(pid_of run/stubborn)"
expect eventually 5 gone "$(pid_of run/sibling)"
expect eventually 5 absent j
kill -KILL "$(pid_of run/daemon)" # left the group: documented

it "while leaserun is stopped, the lock's loss ends all that the command has started all the same"
begin_stubborn "$MNT/j"
kill -STOP "$RUNNER"
expect eventually 5 stopped "$RUNNER"
setfattr -n user.lease.break -v 1 "$MNT/j"
expect eventually 10 all_dead
kill -CONT "$RUNNER"
ended 75

it "while leaserun is stopped and the daemon hangs, the command is dead before the lock would end"
begin_stubborn "$MNT/j"
kill -STOP "$RUNNER"
expect eventually 5 stopped "$RUNNER"
watch_deaths
kill -STOP "$DAEMON"
now
T=$NOW
death_of_all
expect_between 0 $((DEATH - T)) 2990 "milliseconds until all of it was dead"
kill -CONT "$DAEMON"
kill -CONT "$RUNNER"
ended 75
expect grep -q 'about to be lost' "$OUT.bg"

it "while the process that watches is stopped leaserun ends the command in time, and itself"
begin_stubborn "$MNT/j"
WATCHDOG=$(parent_of "$(pid_of run/stubborn)")
kill -STOP "$WATCHDOG"
expect eventually 5 stopped "$WATCHDOG"
watch_deaths
kill -STOP "$DAEMON"
now
T=$NOW
death_of_all
expect_between 0 $((DEATH - T)) 2990 "milliseconds until all of it was dead"
kill -CONT "$DAEMON"
ended 75
expect eventually 5 gone "$WATCHDOG"

it "a nested leaserun ends with the outer lock, and its own lock is free"
begin "$MNT/k" -- "$LEASERUN" "$MNT/l" -- sh -c "trap '' TERM; echo \$\$ >'$TEST_DIR/nested'; while :; do sleep 0.05; done"
expect eventually 5 mark nested
setfattr -n user.lease.break -v 1 "$MNT/k"
ended 75
expect gone "$(pid_of nested)"
expect eventually 5 absent l

# --- the terminal ---

terminal() { # COMMAND… <SCRIPT
    local answer
    if answer=$(in_dir "$PYTHON" -S -E "$E2E_DIR/terminal.py" "$@"); then pass; else fail "$answer"; fi
}
SHELL_ON_TERMINAL=(env PS1='ready> ' HISTFILE= bash --norc --noprofile -i)

it "on a terminal the command is in the foreground: it can read, and Ctrl-C ends it"
terminal "${SHELL_ON_TERMINAL[@]}" <<SCRIPT
await ready>
send '$LEASERUN' '$MNT/t' -- sh -c 'echo "wh""at?"; read -r x; echo "got \$x"'\n
await what\?
send this\n
await got this
await ready>
send '$LEASERUN' '$MNT/t' -- sh -c 'echo "he""re"; exec sleep 60'\n
await here
send \x03
await ready>
send echo "status \$?"\n
await status 130
await ready>
send [ -e '$MNT/t' ] || echo "fr""ee"\n
await free
SCRIPT

it "Ctrl-C also interrupts the script that leaserun is part of"
printf '%s\n' "'$LEASERUN' '$MNT/t' -- sh -c 'echo he\"\"re; exec sleep 60'" 'echo "went"" on"' >"$TEST_DIR/script"
terminal "${SHELL_ON_TERMINAL[@]}" <<SCRIPT
await ready>
send bash '$TEST_DIR/script'\n
await here
send \x03
await ^((?!went on)[^>])*ready>
send echo "status \$?"\n
await status 130
SCRIPT

it "Ctrl-Z stops the job, fg goes on with it, bg too; the lock is held all the time"
terminal "${SHELL_ON_TERMINAL[@]}" <<SCRIPT
await ready>
send '$LEASERUN' '$MNT/t' -- sh -c 'echo "fi""rst"; read -r x; echo "got \$x"; sleep 0.1; echo "la""st"'\n
await first
send \x1a
await Stopped
await ready>
send [ -e '$MNT/t' ] && echo "he""ld"\n
await held
send fg\n
await leaserun
send line\n
await got line
await last
await ready>
send '$LEASERUN' '$MNT/t' -- bash -c 'echo "fi""rst"; sleep 0.3; echo "en""ded"'\n
await first
send \x1a
await Stopped
send bg\n
await ended
send wait; [ -e '$MNT/t' ] || echo "fr""ee"\n
await free
SCRIPT

it "in the background it stops when it reads from the terminal, and reads when it is brought back"
terminal "${SHELL_ON_TERMINAL[@]}" <<SCRIPT
await ready>
send '$LEASERUN' '$MNT/t' -- sh -c 'read -r x; echo "got \$x"' &\n
await ready>
send until jobs | grep -q Stopped; do sleep 0.05; done; echo "is"" stopped"\n
await is stopped
await ready>
send fg\n
await leaserun
send line\n
await got line
await ready>
SCRIPT

it "in a pipeline the others can use the terminal, and Ctrl-C and Ctrl-Z reach all"
terminal "${SHELL_ON_TERMINAL[@]}" <<SCRIPT
await ready>
send '$LEASERUN' '$MNT/t' -- bash -c 'trap "echo \$((40 + 2))" CONT; echo "fi""rst"; while :; do sleep 0.05; done' | cat\n
await first
send \x1a
await Stopped
await ready>
send fg\n
await 42
send \x03
await ready>
send '$LEASERUN' '$MNT/t' -- sh -c 'echo "fi""rst"; read -r x; echo "got \$x"' | cat\n
await first
send line\n
await got line
await ready>
SCRIPT

it "as the leader of a session without a shell it cannot be stopped, and does not hang"
terminal "$LEASERUN" "$MNT/t" -- sh -c 'echo first; read -r x; echo "got $x"' <<SCRIPT
await first
send \x1a
send line\n
await got line
SCRIPT

it "a lock that is lost while the job is stopped ends it"
terminal "${SHELL_ON_TERMINAL[@]}" <<SCRIPT
await ready>
send '$LEASERUN' '$MNT/t' -- sh -c 'echo "fi""rst"; exec sleep 60'; echo "status \$?"\n
await first
send \x1a
await Stopped
send setfattr -n user.lease.break -v 1 '$MNT/t'\n
await ready>
send fg; echo "status \$?"\n
await lost
await status 75
SCRIPT

finish
