#!/bin/bash
# leaserun(1) with several locks at once (-l), and with a queue that is made on the way (-N).
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
mount_memory ttl=2

it "-l names several: all are held while the command runs, and free when leaserun returns"
gives 0 -l "$MNT/b" -l "$MNT/a" -l "$MNT/c" -- sh -c "for l in a b c; do ! flock -n '$MNT'/\$l true || exit 1; done"
for l in a b c; do expect absent "$l"; done

it "LEASE_NAME and LEASE_TOKEN are of the one named first, LEASE_OUTER has the others in their order"
gives 0 -l "$MNT/b" -l "$MNT/a" -l "$MNT/c" -- sh -c 'echo "$LEASE_NAME"; echo "$LEASE_OUTER"
    setfattr -n user.lease.check -v "$LEASE_TOKEN" "$LEASE_NAME" && echo current
    echo "$LEASE_OUTER" | while read -r token name; do [ -z "$name" ] || setfattr -n user.lease.check -v "$token" "$name" && echo "$name is"; done'
expect_is "$(sed -n 1p "$OUT")" "$MNT/b"
expect_is "$(sed -n '2,3p' "$OUT" | cut -d' ' -f2 | tr '\n' ' ')" "$MNT/a $MNT/c "
said '^current$'
said "^$MNT/a is\$"
said "^$MNT/c is\$"

it "when one is refused (-n) or not free in time (-w) the others are given back before leaserun returns"
exec 9<>"$MNT/m"
flock 9
for order in "a m z" "z m a"; do
    # shellcheck disable=SC2086 # words are meant
    set -- $order
    gives 1 -n -l "$MNT/$1" -l "$MNT/$2" -l "$MNT/$3" -- echo ran
    for l in a z; do expect absent "$l"; done
    now
    T=$NOW
    gives 9 -w 0.3 -E 9 -l "$MNT/$1" -l "$MNT/$2" -l "$MNT/$3" -- echo ran
    now
    expect_between 290 $((NOW - T)) $((300 + SLACK)) "milliseconds waited"
    for l in a z; do expect absent "$l"; done
done
expect_not grep -q '^ran' "$OUT"

it "without these it waits for all; a signal meanwhile frees what is held already"
begin -l "$MNT/a" -l "$MNT/m" -- true
expect eventually 5 waiters m 1
expect exists a
kill -TERM "$RUNNER"
ended 143
expect eventually 5 absent a
expect eventually 5 waiters m 0
begin -l "$MNT/a" -l "$MNT/m" -- true
expect eventually 5 waiters m 1
kill -KILL "$RUNNER"
ended 137
expect eventually 5 absent a
expect eventually 5 waiters m 0
begin -l "$MNT/m" -l "$MNT/a" -- sh -c "exit 6"
expect eventually 5 waiters m 1

it "one that is lost while it waits for the next ends it with 75"
begin -l "$MNT/b" -l "$MNT/m" -- echo ran
expect eventually 5 waiters m 2
setfattr -n user.lease.break -v 1 "$MNT/b"
ended 75
expect grep -q "$MNT/b: the lock is lost, while waiting for $MNT/m" "$OUT.bg"
expect_not grep -q '^ran' "$OUT.bg"
expect eventually 5 waiters m 1
flock -u 9
exec 9>&-
expect eventually 5 absent m

it "many at once in any order do not deadlock: opposite orders, through links, and through .. and ."
ln -s "$MNT" "$TEST_DIR/link"
: >"$TEST_DIR/count"
runners=()
for i in $(seq 12); do
    case $((i % 4)) in
    0) set -- "$MNT/x" "$MNT/y" "$MNT/z" ;;
    1) set -- "$MNT/z" "$MNT/y" "$MNT/x" ;;
    2) set -- "$TEST_DIR/link/y" "$MNT/x" "$MNT/../${MNT##*/}/z" ;;
    3) set -- "$MNT/./z" "$TEST_DIR/link/x" "$MNT/y" ;;
    esac
    "$LEASERUN" -l "$1" -l "$2" -l "$3" -- sh -c "mkdir '$TEST_DIR/alone' && rmdir '$TEST_DIR/alone' && echo $i >>'$TEST_DIR/count'" &
    runners+=("$!")
    started+=("$!")
done
for runner in "${runners[@]}"; do
    expect eventually 30 gone "$runner"
    expect wait "$runner"
done
expect_is "$(wc -l <"$TEST_DIR/count")" 12

it "a lock that is named twice, also by another path, is taken once"
gives 0 -n -l "$MNT/a" -l "$TEST_DIR/link/a" -l "$MNT/a" -- true
mkdir "$TEST_DIR/bound" "$MNT/sub"
mount --bind "$MNT/sub" "$TEST_DIR/bound"
gives 0 -n -l "$MNT/sub/a" -l "$TEST_DIR/bound/a" -- true
umount "$TEST_DIR/bound"

it "losing any of them ends the command and all that it has started, and the others are free"
for lost in a b c; do
    rm -f "$TEST_DIR/pid"
    begin -l "$MNT/c" -l "$MNT/a" -l "$MNT/b" -- sh -c "trap '' TERM; setsid sleep 60 & echo \$! >'$TEST_DIR/pid'; while :; do sleep 0.05; done"
    expect eventually 5 mark pid
    setfattr -n user.lease.break -v 1 "$MNT/$lost"
    ended 75
    expect grep -q "$MNT/$lost: the lock is lost" "$OUT.bg"
    expect gone "$(pid_of pid)"
    for l in a b c; do expect eventually 5 absent "$l"; done
done

it "killed itself, or one of the processes that keep a lock: the command is killed, and all are free"
rm -f "$TEST_DIR/pid"
begin -l "$MNT/a" -l "$MNT/b" -- sh -c "echo \$\$ >'$TEST_DIR/pid'; exec sleep 60"
expect eventually 5 mark pid
kill -KILL "$RUNNER"
ended 137
expect eventually 5 gone "$(pid_of pid)"
for l in a b; do expect eventually 5 absent "$l"; done
rm -f "$TEST_DIR/pid"
begin -l "$MNT/a" -l "$MNT/b" -- sh -c "echo \$\$ >'$TEST_DIR/pid'; exec sleep 60"
expect eventually 5 mark pid
kill -KILL "$(attribute b owner | cut -d' ' -f2)"
ended 75
expect gone "$(pid_of pid)"
expect eventually 5 absent a

it "inside a leaserun of some of them only the others are taken; of all, the command runs at once"
gives 0 "$MNT/b" -- "$LEASERUN" -n -l "$MNT/a" -l "$MNT/b" -l "$MNT/c" -- sh -c "echo \$LEASE_NAME; [ -e '$MNT/a' ] && [ -e '$MNT/c' ] &&
    '$LEASERUN' -n -v -l '$MNT/c' -l '$MNT/b' -- sh -c 'echo \$LEASE_NAME; setfattr -n user.lease.check -v \$LEASE_TOKEN \$LEASE_NAME'"
expect_is "$(head -1 "$OUT")" "$MNT/a"
expect_is "$(tail -1 "$OUT")" "$MNT/c"
said 'held already'

it "-F takes several too"
"$LEASERUN" -F -l "$MNT/b" -l "$MNT/a" -- sh -c "echo \$LEASE_NAME >'$TEST_DIR/name'; [ -e '$MNT/a' ] && [ -e '$MNT/b' ] && exit 3"
expect_is $? 3
expect_is "$(cat "$TEST_DIR/name")" "$MNT/b"
for l in a b; do expect eventually 5 absent "$l"; done

it "too many, an empty name, or -N with several are told, with status 64; one that cannot be takes nothing"
many=()
for i in $(seq 65); do many+=(-l "$MNT/$i"); done
gives 64 "${many[@]}" -- true
said 'at most 64'
gives 64 -l "" -- true
gives 64 -N 2 -l "$MNT/a" -l "$MNT/b" -- true
gives 64 -l "$MNT/a"
gives 66 -l "$MNT/a" -l "$TEST_DIR/file" -- true
expect absent a

# --- -N ---

it "-N makes the queue with its width, and takes a place in it"
gives 0 -N 2 "$MNT/q" -- sh -c "ls '$MNT/q'; getfattr --only-values -n user.lease.width '$MNT/q'"
said '^run-[0-9]{10}$'
said '^2$'
expect_is "$(ls "$MNT")" "q
sub" "nothing else is left"

it "so many run at once, and no more"
rm -f "$TEST_DIR"/n.*
for i in 1 2; do
    begin -N 2 "$MNT/q" -- sh -c "echo \$\$ >'$TEST_DIR/n.$i'; exec sleep 60"
    expect eventually 5 mark "n.$i"
done
gives 1 -n -N 2 "$MNT/q/" -- true
kill "$(pid_of n.1)"
expect eventually 5 "$LEASERUN" -n -N 2 "$MNT/q" -- true
kill "$(pid_of n.2)"
ended 143

it "a width that differs is an error that says so, and changes nothing"
gives 65 -N 3 "$MNT/q" -- echo ran
said 'has the width 2, not 3'
expect_is "$(attribute q width)" 2
expect_not grep -q '^ran' "$OUT"
mkdir "$MNT/q1"
gives 65 -N 3 "$MNT/q1" -- true
gives 0 -N 1 "$MNT/q1" -- true

it "many that make it at once agree"
runners=()
for i in $(seq 10); do
    "$LEASERUN" -N 3 "$MNT/new" -- true &
    runners+=("$!")
    started+=("$!")
done
for runner in "${runners[@]}"; do expect wait "$runner"; done
expect_is "$(attribute new width)" 3

it "whoever makes a queue and does not come to an end keeps -n and -w from waiting for ever"
exec 8<>"$MNT/slow#width"
flock 8
gives 1 -n -N 2 "$MNT/slow" -- echo ran
said 'is being made by another, who holds .*/slow#width'
gives 9 -w 0.3 -E 9 -N 2 "$MNT/slow" -- echo ran
exec 8>&-
gives 0 -n -N 2 "$MNT/slow" -- true

it "where it cannot be made that is told"
gives 66 -N 2 "$MNT/none/q" -- true
gives 66 -N 2 "$TEST_DIR/q" -- true
said 'not in a leasefs'
gives 64 -N 2 "$MNT/q/job-" -- true
said 'is a place in a queue'
expect_not [ -e "$TEST_DIR/q" ]
touch "$MNT/lock"
gives 66 -N 2 "$MNT/lock" -- true
said 'not a directory'
rm "$MNT/lock"
for wrong in 0 -1 x 4294967296; do gives 64 -N "$wrong" "$MNT/q" -- true; done

# --- two hosts ---

redis_start

it "two mounts of one store take them in the same order, and the same lock by both mounts once"
mount_two ttl=3
: >"$TEST_DIR/count"
runners=()
for i in $(seq 8); do
    if [ $((i % 2)) = 0 ]; then set -- "$MOUNT_A/x" "$MOUNT_A/y"; else set -- "$MOUNT_B/y" "$MOUNT_B/x"; fi
    "$LEASERUN" -l "$1" -l "$2" -- sh -c "mkdir '$TEST_DIR/alone' && rmdir '$TEST_DIR/alone' && echo $i >>'$TEST_DIR/count'" &
    runners+=("$!")
    started+=("$!")
done
for runner in "${runners[@]}"; do
    expect eventually 30 gone "$runner"
    expect wait "$runner"
done
expect_is "$(wc -l <"$TEST_DIR/count")" 8
gives 0 -n -l "$MOUNT_A/x" -l "$MOUNT_B/x" -- true

it "-N means the same queue through both mounts"
begin -N 1 "$MOUNT_A/q" -- sh -c "echo x >'$TEST_DIR/far'; exec sleep 60"
expect eventually 5 mark far
gives 1 -n -N 1 "$MOUNT_B/q" -- true
gives 65 -n -N 2 "$MOUNT_B/q" -- true
kill -TERM "$RUNNER"
ended 143

it "-t and -k may be far longer than the mount's ttl, and shorter: the command runs to its end"
for term in "1m" "1h" "10m -k 4m" "1m -k 0" "300ms" "2900ms -k 1"; do
    for _ in 1 2 3; do
        # shellcheck disable=SC2086 # words are meant
        gives 9 -n -t $term "$MOUNT_A/long" -- sh -c 'sleep 0.1; exit 9'
    done
done
gives 0 -n -t 1m "$MOUNT_A/long" -- sh -c "sleep 0.3; getfattr --only-values -n user.lease.remaining '$MOUNT_A/long'"
said '^5[0-9]\.'
gives 9 -n -t 1m -N 2 "$MOUNT_A/longqueue" -- sh -c 'sleep 0.1; exit 9'
expect "$LEASERUN" -F -n -t 1m "$MOUNT_A/long" -- sleep 0.2

it "when the store is away for too long the command ends, whichever mount is cut off"
begin -l "$MOUNT_A/x" -l "$MNT/y" -- sh -c 'echo >"$0"; exec sleep 60' "$TEST_DIR/began"
expect eventually 5 mark began
redis_pause
ended 75
gives 69 -l "$MOUNT_A/x" -l "$MOUNT_A/y" -n -- true
redis_resume

finish
