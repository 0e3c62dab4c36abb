#!/bin/bash
# Restarting without losing anyone: kill -9 of the daemon under the load of 32
# clients, and the same command line again on top of what it left.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "$PYTHON" ] || skip_all "no python3"

CLIENTS=32 NAMES=12 HOLDERS=6 ROUNDS=6
STORE=$TEST_DIR/store JOURNAL=$TEST_DIR/journal
mkdir -m 700 "$STORE"
mkdir "$TEST_DIR/witnesses"
: >"$JOURNAL"

# A script as users write it: it takes a lock with touch, and gives it back when asked.
holder() { # NAME
    touch "$MNT/held-$1" || exit 1
    : >"$TEST_DIR/ready-$1"
    until [ -e "$TEST_DIR/end" ]; do pause 0.02; done
    rm "$MNT/held-$1"
}

# restart: kill -9, and the same command line at once; the milliseconds in between in $TOOK.
restart() {
    local point=$MNT from
    mount_index "$point"
    now
    from=$NOW
    end_process "$DAEMON"
    mount_daemons[INDEX]=
    mount_at "$point" "local:$STORE" ttl=20
    now
    TOOK=$((NOW - from))
}

lines() { grep -c "^$1" "$JOURNAL"; }
more_than() { [ "$(lines "$1")" -gt "$2" ]; }

mount_local "$STORE" ttl=20
point=$MNT

for ((i = 0; i < HOLDERS; i++)); do
    start holder $i
    expect eventually 10 [ -e "$TEST_DIR/ready-$i" ]
done
declare -a token=()
for ((i = 0; i < HOLDERS; i++)); do token[i]=$(attribute held-$i token); done
seed=${E2E_SEED:-$RANDOM}
declare -a clients=()
for ((i = 0; i < CLIENTS; i++)); do
    start "$PYTHON" -S -E "$E2E_DIR/restarter.py" "$MNT" "$TEST_DIR/witnesses" "$JOURNAL" $((seed + i)) $NAMES
    clients+=("$STARTED")
done

for ((round = 1; round <= ROUNDS; round++)); do
    it "killed under the load of $CLIENTS clients and started again (round $round): usable within 2 s, one mount, all go on"
    say "seed $seed"
    expect eventually 20 more_than held $(($(lines held) + 200))
    restart
    expect_between 0 "$TOOK" $((2000 + SLACK)) "milliseconds until it was usable"
    say "usable after $TOOK ms"
    expect_is "$(awk -v point="$MNT" '$5 == point' /proc/self/mountinfo | wc -l)" '[12]' "mounts" # 2 before Linux 6.5
    expect eventually 20 more_than held $(($(lines held) + 200))
    expect_is "$(grep VIOLATION "$JOURNAL")" ""

    it "those who hold by touch still do (round $round): the same token, refused to others"
    for ((i = 0; i < HOLDERS; i++)); do
        expect_is "$(attribute held-$i token)" "${token[i]}" token
        expect_not touch "$MNT/held-$i" 2>/dev/null
        expect_not rm -f "$MNT/held-$i" 2>/dev/null
    done
done

it "no lock was ever held twice, no token given twice, no lease lost"
for pid in "${clients[@]}"; do kill -TERM "$pid"; done
for pid in "${clients[@]}"; do expect eventually 20 gone "$pid"; done
expect_is "$(grep VIOLATION "$JOURNAL")" ""
expect_is "$(lines ended)" $CLIENTS
say "$(lines held) locks were held, $(lines error) errors met: $(sed -n 's/^error //p' "$JOURNAL" | sort | uniq -c | tr -s ' \n' ' ')"

it "those who hold by touch release, and nothing is left"
: >"$TEST_DIR/end"
expect eventually 10 eval '[ -z "$(ls -A "$MNT")" ]'

# In its first second a lease taken by touch is still that of the touch, which has ended.
taker() { # NAME
    touch "$MNT/$1" && : >"$TEST_DIR/ready-$1"
    until [ -e "$TEST_DIR/end-$1" ]; do pause 0.02; done
}

is_kept() { # NAME PID: by that process, and by nobody else
    expect_is "$(attribute "$1" owner)" "* $2 $(id -u) $(cat "/proc/$2/comm")" owner
    expect_not touch "$MNT/$1" 2>/dev/null
    expect_not rm -f "$MNT/$1" 2>/dev/null
}

it "a lease in its first second when the daemon is killed goes to the parent all the same, for good"
start taker fresh
expect eventually 10 [ -e "$TEST_DIR/ready-fresh" ]
restart
is_kept fresh "$STARTED"
pause 1.2
restart
is_kept fresh "$STARTED"

it "a lease whose first second passed while there was no daemon goes to the parent too"
start taker missed
expect eventually 10 [ -e "$TEST_DIR/ready-missed" ]
kill -9 "$DAEMON"
pause 1.2
restart
is_kept missed "$STARTED"
restart
is_kept missed "$STARTED"

it "one that was asked about in its first second is kept by who inherited"
start taker asked
expect eventually 10 [ -e "$TEST_DIR/ready-asked" ]
is_kept asked "$STARTED"
pause 1.2
restart
is_kept asked "$STARTED"

it "a lease whose owner was final and died while there was no daemon is inherited by nobody"
actor A
says A 'acquire("final")' ok
pause 1.2
kill -9 "$DAEMON"
end_actor A
restart
say "owner: $(attribute final owner)"
expect rm "$MNT/final"

it "a lease of a living process ends neither while no daemon is there for longer than its term, nor while one stands still"
actor A
mkdir "$MNT/brief"
says A 'put("brief", "ttl", "1s"); acquire("brief/late"); acquire("fixed"); put("fixed", "ttl", "1s")' ok
expect_re "$(attribute brief/late remaining)" '^[01]\.'
token=$(attribute brief/late token)
pause 1.2
kill -9 "$DAEMON"
pause 2
restart
expect_is "$(attribute brief/late token)" "$token" token
expect_not [ -e "$MNT/fixed" ]
kill -STOP "$DAEMON"
pause 3
kill -CONT "$DAEMON"
expect_is "$(attribute brief/late token)" "$token" token
expect_not eval 'set -C; : >"$MNT/brief/late"' 2>/dev/null
end_actor A

it "leases of whatever names and directories are all there again, and each can be given back"
mkdir -p "$MNT/m/n" "$MNT/o"
names=(a m/a m/b m/n/x m/n/y n o/a p)
set -C
for name in p m/b m/n/y a m/n/x o/a n m/a; do
    : >"$MNT/$name"
done
set +C
echo content >"$MNT/a"
restart
restart
expect_is "$(stat -c %s "$MNT/a" "$MNT/n" | tr '\n' ' ')" "8 0 " sizes
expect_is "$(cd "$MNT" && find a m n o p -type f | sort | tr '\n' ' ')" "${names[*]} " leases
for name in "${names[@]}"; do
    expect rm "$MNT/$name"
    expect_not [ -e "$MNT/$name" ]
done

finish
