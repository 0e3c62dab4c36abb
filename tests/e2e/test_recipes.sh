#!/bin/bash
# The recipes that the documentation quotes, each with participants that are killed.
#
# Environment: E2E_STORE: local (default), or redis: two mounts of one server, and participants alternate between them;
# E2E_FULL, when set: 100 processes sell the stock instead of 20; STRESS_SEED.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
SEED=${STRESS_SEED:-$((SRANDOM % 32768))}
RANDOM=$SEED
RECIPES=$E2E_DIR/recipes
export TEST_DIR

# inside SLOTS HOW: what runs under a recipe. It tells if it is inside with somebody whom it excludes; a process that the
# kernel is ending does not count: it closes its files one after the other.
cat >"$TEST_DIR/inside" <<'END'
#!/bin/bash
alive() { # PID
    local fields
    { read -ra fields <"/proc/$1/stat"; } 2>/dev/null && [[ ${fields[2]} != [ZX] ]] && ((!(fields[8] & 4))) # PF_EXITING
}
echo "$2" >"$TEST_DIR/inside.$$"
others=0
for file in "$TEST_DIR"/inside.*; do
    pid=${file##*.} how=
    [ "$pid" -ne $$ ] && read -r how <"$file" && alive "$pid" || continue
    [ "$2$how" = -s-s ] || others=$((others + 1))
done 2>/dev/null
[ "$others" -lt "$1" ] || echo "overlap $$ $2" >>"$TEST_DIR/log"
echo "in $$ $2" >>"$TEST_DIR/log"
read -r -t 0.0$((RANDOM % 5 + 1)) _ <>"$TEST_DIR/never"
rm -f "$TEST_DIR/inside.$$" # before the lock is given back
echo "out $$ $2" >>"$TEST_DIR/log"
END
chmod +x "$TEST_DIR/inside"

logged() { grep -c "$1" "$TEST_DIR/log"; }
logged_at_least() { [ "$(logged "$1")" -ge "$2" ]; }
there_are() { [ "$(ls "$MNT/$1" 2>/dev/null | wc -l)" -eq "$2" ]; } # DIRECTORY COUNT

declare -a crowd=()
begin() {
    crowd=()
    : >"$TEST_DIR/log"
    rm -f "$TEST_DIR"/inside.*
}
join() { # COMMAND…: in a process group of its own, and on the next mount
    start setsid "${@/#"$MNT"/${mounts[joined++ % ${#mounts[@]}]}}"
    crowd+=("$STARTED")
}
kill_group() { # PID
    kill -9 -- "-$1"
    wait "$1"
    return 0
} 2>/dev/null
# Kills every fourth of the crowd at some moment; of the others, all succeed, and no two were inside that exclude each other.
kill_some() { # COUNT OF THOSE THAT MUST HAVE ENTERED BEFORE
    local i
    expect eventually 20 logged_at_least ^in "$1"
    killed=0
    for ((i = 3; i < ${#crowd[@]}; i += 4)); do
        kill_group "${crowd[i]}"
        unset "crowd[i]"
        killed=$((killed + 1))
        pause 0.0$((RANDOM % 9))
    done
}
all_others_succeed() {
    local pid
    for pid in "${crowd[@]}"; do
        expect wait "$pid"
        expect logged_at_least "^out $pid " 1
    done
    expect_is "$(logged overlap)" 0 overlaps
}

joined=0
if [ "${E2E_STORE:-local}" = redis ]; then
    # shellcheck source=redis.sh
    . "$E2E_DIR/redis.sh"
    redis_start
    mount_two
    MNT=$MOUNT_A
    mounts=("$MOUNT_A" "$MOUNT_B")
else
    mount_local "$TEST_DIR/store"
    mounts=("$MNT")
fi
say "seed: STRESS_SEED=$SEED"

it "mutex: one at a time, and who dies hands on"
begin
for i in {1..16}; do join "$RECIPES/mutex" "$MNT/mutex" "$TEST_DIR/inside" 1 -x; done
kill_some 1
all_others_succeed
expect eventually 2 there_are mutex 0

it "read-write lock: readers together, writers alone"
begin
for i in {1..16}; do
    case $((i % 3)) in
    0) join "$RECIPES/rwlock" "$MNT/rwlock" write "$TEST_DIR/inside" 1 -x ;;
    *) join "$RECIPES/rwlock" "$MNT/rwlock" read "$TEST_DIR/inside" 1 -s ;;
    esac
done
kill_some 1
all_others_succeed
begin
join "$RECIPES/rwlock" "$MNT/rwlock" read bash -c 'echo in; exec sleep 60' >>"$TEST_DIR/log"
join "$RECIPES/rwlock" "$MNT/rwlock" read bash -c 'echo in; exec sleep 60' >>"$TEST_DIR/log"
expect eventually 5 logged_at_least in 2 # both at once
kill_group "${crowd[0]}"
join "$RECIPES/rwlock" "$MNT/rwlock" write bash -c 'echo wrote' >>"$TEST_DIR/log"
expect eventually 5 there_are rwlock 2
expect_is "$(logged wrote)" 0
kill_group "${crowd[1]}"
expect wait "${crowd[2]}"
expect_is "$(logged wrote)" 1

it "semaphore: three at once, never more"
begin
for i in {1..16}; do join "$RECIPES/semaphore" "$MNT/semaphore" "$TEST_DIR/inside" 3 -x; done
kill_some 1
all_others_succeed
begin
for i in {1..4}; do join "$RECIPES/semaphore" "$MNT/semaphore" bash -c 'echo in; exec sleep 60' >>"$TEST_DIR/log"; done
expect eventually 5 logged_at_least in 3
logged_are() { [ "$(logged "$1")" -eq "$2" ]; }
expect constantly 200 logged_are in 3
pid=$(attribute "semaphore/$(ls "$MNT/semaphore" | head -1)" owner | cut -d' ' -f2)
kill_group "$pid"
expect eventually 2 logged_at_least in 4
for pid in "${crowd[@]}"; do kill_group "$pid"; done

it "leader: a standby takes over at once when the leader is killed, with a larger token"
begin
for i in {1..3}; do
    join "$RECIPES/leader" "$MNT/leader" bash -c 'echo "$$ $TOKEN"; exec sleep 60' >>"$TEST_DIR/log"
done
expect eventually 5 logged_at_least . 1
expect eventually 5 there_are leader 3
for terms in 2 3; do
    read -r pid token < <(tail -1 "$TEST_DIR/log")
    kill -9 "$pid"
    now
    T=$NOW
    expect eventually 5 logged_at_least . "$terms"
    now
    expect_between 0 $((NOW - T)) "$SLACK" "milliseconds without a leader"
    read -r pid next < <(tail -1 "$TEST_DIR/log")
    expect [ "$next" -gt "$token" ]
done
for pid in "${crowd[@]}"; do kill_group "$pid"; done

it "barrier: all go on when all are there; who died while it waited does not count"
begin
arrive() { join "$RECIPES/barrier" "$MNT/barrier" 4 echo passed >>"$TEST_DIR/log"; }
for i in {1..3}; do arrive; done
expect eventually 5 there_are barrier 6
kill_group "${crowd[1]}"
expect eventually 2 there_are barrier 4
arrive
expect eventually 5 there_are barrier 6
expect constantly 300 logged_are passed 0
arrive
for i in 0 2 3 4; do expect wait "${crowd[i]}"; done
expect_is "$(logged passed)" 4
expect eventually 2 there_are barrier 0

it "work queue: in order, and what a killed worker had begun is done by another"
begin
mkdir "$TEST_DIR/spool"
for i in {1..12}; do : >"$TEST_DIR/spool/$(printf %02d "$i")"; done
work='echo "did ${1##*/}" >>"$TEST_DIR/log"; read -r -t 0.05 _ <>"$TEST_DIR/never"; :'
for i in {1..4}; do join "$RECIPES/workqueue" "$MNT/work" "$TEST_DIR/spool" bash -c "$work" _; done
expect eventually 10 logged_at_least did 4
for i in 0 2; do kill_group "${crowd[i]}"; done
for i in 1 3; do expect wait "${crowd[i]}"; done
expect_is "$(ls "$TEST_DIR/spool")" ""
expect_is "$(sort -u "$TEST_DIR/log" | wc -l)" 12
expect [ "$(logged did)" -le 14 ] # twice only what a killed one was at
: >"$TEST_DIR/log"
for i in {1..5}; do : >"$TEST_DIR/spool/$i"; done
expect "$RECIPES/workqueue" "$MNT/work" "$TEST_DIR/spool" bash -c "$work" _
expect_is "$(paste -sd ' ' "$TEST_DIR/log")" "did 1 did 2 did 3 did 4 did 5"

it "segments: a stock in 20 parts sells out under racing and killed sellers, and never goes negative"
begin
sellers=20 each=3
[ -z "${E2E_FULL:-}" ] || { sellers=100 each=20; }
mkdir "$TEST_DIR/stock"
for i in {0..19}; do echo "$each" >"$TEST_DIR/stock/$i"; done
for ((i = 0; i < sellers; i++)); do
    join bash -c 'while "$1" "$2" "$3"; do echo "in $$" >>"$TEST_DIR/log"; done' \
        _ "$RECIPES/segments" "$MNT/stock" "$TEST_DIR/stock"
done
kill_some 5
for pid in "${crowd[@]}"; do expect wait "$pid"; done
expect_is "$(cat "$TEST_DIR"/stock/{0..19} | sort -u)" 0 "what is left of each part"
expect_between $((20 * each - killed)) "$(logged ^in)" $((20 * each)) "pieces sold"
say "sold: $(logged ^in) of $((20 * each)) by $sellers sellers, $killed of them killed"

it "renewal: the lease lasts while the command runs, and ends by its term when the script is killed"
begin
mkfifo "$TEST_DIR/done"
join "$RECIPES/renewal" "$MNT/renewal" bash -c 'read -r _ <"$TEST_DIR/done"'
join "$RECIPES/renewal" "$MNT/crashed" sleep 60
join "$RECIPES/renewal" "$MNT/broken" sleep 60
has_term() { [ "$(attribute "$1" ttl)" = 3 ]; }
for name in renewal crashed broken; do expect eventually 20 has_term $name/lease; done
expect_not "$RECIPES/renewal" "$MNT/renewal" true 2>/dev/null
kill_group "${crowd[1]}"
expect exists crashed/lease
expect setfattr -n user.lease.break -v 1 "$MNT/broken/lease"
expect constantly 3300 exists renewal/lease # for longer than its term
expect eventually $((SLACK / 1000 + 1)) absent crashed/lease
echo >"$TEST_DIR/done"
expect wait "${crowd[0]}"
expect absent renewal/lease
expect_not wait "${crowd[2]}" # it has learned that it had lost the lease
kill_group "${crowd[2]}"

it "fencing: who was asleep when its lease ended is refused by what the lock guards; a killed one leaves it free"
begin
mkfifo "$TEST_DIR/wake"
guarded=$TEST_DIR/guarded
fencing() { join "$RECIPES/fencing" "$MNT/fencing" "$guarded" "$@"; }
fencing bash -c 'echo in >>"$TEST_DIR/log"; read -r _ <"$TEST_DIR/wake"; echo old' 2>"$TEST_DIR/refused"
expect eventually 5 logged_at_least in 1
expect eventually $((1 + SLACK / 1000 + 1)) absent fencing/lease
expect "$RECIPES/fencing" "$MNT/fencing" "$guarded" echo new
echo >"$TEST_DIR/wake"
expect_not wait "${crowd[0]}"
expect_is "$(cat "$TEST_DIR/refused")" "*refused: token*"
expect_is "$(cat "$guarded")" new
fencing bash -c 'echo in >>"$TEST_DIR/log"; exec sleep 60'
expect eventually 5 logged_at_least in 2
kill_group "${crowd[1]}"
expect eventually $((1 + SLACK / 1000 + 1)) absent fencing/lease
expect "$RECIPES/fencing" "$MNT/fencing" "$guarded" echo newer
expect_is "$(cat "$guarded")" newer

finish
