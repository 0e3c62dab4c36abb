#!/bin/bash
# A lock on a mount is the same lock that clients in other languages take on the Redis server, both ways, with the real
# clients (interop/).
#
#   tests/e2e/test_interop.sh [CLIENT]...     only these
#
# Those that Debian has always run.  Those of npm are installed for the test, at the versions of interop/package.json,
# into its scratch directory; where that cannot be done (no npm, which is 350 packages in Debian, or its registry is not
# reached) they are passed over with a line `# SKIP`.  That is not a skip that fails a CI: the tests are to need nothing
# but Debian, and a registry that is away for an hour must not stop a change.
#
# ls does not show a lock that only foreign clients have taken, because only a walk over all keys of the server would
# find it; it is found by its name.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
INTEROP=$E2E_DIR/interop
[ -n "$PYTHON" ] || skip_all "no python3"

wanted() { [ "${#only[@]}" -eq 0 ] || [[ " ${only[*]} " = *" $1 "* ]]; }
only=("$@")

written() { [ -s "$1" ]; }

# Everything that is said of one client; its locks are NAME.1, NAME.2, …
# client NAME KEYS EXTENDS COMMAND…: KEYS is what stands before a name to make its key; EXTENDS: it can (yes or no).
client() {
    local name=$1 before=$2 extends=$3 log=$TEST_DIR/$1.log other
    shift 3
    partner C "$@"

    L=$name.held
    it "$name holds: the file is there on all mounts, and refused to everybody"
    says C "acquire $before$L 60000" held
    other=$(redis_cli GET "$before$L")
    expect exists "$L"
    expect on "$SECOND" exists "$L"
    expect_not bash -c 'set -C; : >"$1"' _ "$MNT/$L" 2>/dev/null
    expect_not touch "$MNT/$L" 2>/dev/null
    expect_not ln -s x "$MNT/$L" 2>/dev/null
    expect_not flock -n "$MNT/$L" true
    expect_not flock -n -s "$MNT/$L" true
    expect_not flock -w 0.2 "$MNT/$L" true
    says A "rm('$L')" EPERM
    expect_is "$(redis_cli GET "$before$L")" "$other" "the value of its key"

    it "$name holds: cat, stat and the attributes tell of it"
    expect cat "$MNT/$L" >/dev/null
    expect_is "$(stat -c %F "$MNT/$L")" 'regular*file'
    expect_is "$(attribute "$L" mode)" exclusive
    expect_between 30000 "$(remaining "$L")" 60000 remaining
    expect_is "$(attribute "$L" waiters)" 0
    expect_is "$(attribute "$L" state)" '@(held|free)' # of the asker's handle there is none
    expect getfattr -d --absolute-names "$MNT/$L" >/dev/null

    it "flock waits for the release of $name, and has the lock within a second of it; $name is refused then"
    rm -f "$log"
    start flock -w 30 "$MNT/$L" bash -c 'echo got >"$1"; read -r _ <"$2"' _ "$log" "$TEST_DIR/go"
    expect eventually 5 waiters "$L" 1
    expect constantly 150 test ! -e "$log"
    says C release ok
    now
    T=$NOW
    expect eventually 10 written "$log"
    now
    expect_between 0 $((NOW - T)) $((1000 + SLACK)) "milliseconds from the release to the grant"
    says C "acquire $before$L 5000" refused
    echo >"$TEST_DIR/go"
    expect wait "$STARTED"
    expect eventually 5 absent "$L"

    L=$name.expires
    it "flock waits until the lock of $name has expired, and not less"
    now
    T=$NOW
    says C "acquire $before$L 1000" held
    expect_not flock -n "$MNT/$L" true
    expect flock -w 10 "$MNT/$L" true
    now
    expect_between 990 $((NOW - T)) $((2000 + SLACK)) "milliseconds from the acquisition of 1000 ms"
    expect eventually 5 absent "$L"

    L=$name.lease
    it "a lease of the mount is refused to $name, which gets it after rm"
    says A "acquire('$L', 'text')" ok
    says C "acquire $before$L 5000" refused
    says C "forge $before$L" '*'
    expect exists "$L"
    expect_is "$(cat "$MNT/$L")" text
    says A "rm('$L')" ok
    says C "acquire $before$L 5000" held
    expect exists "$L"
    says C release ok
    expect eventually 2 absent "$L"

    L=$name.queue
    it "who waits on a mount is not overtaken by $name, which asks again and again; $name has it afterwards"
    says A "f = op('$L', 'RDWR|CREAT'); flock(f, 'EX')" ok
    says B "f = op('$L', 'RDWR|CREAT')" ok
    tell B "flock(f, 'EX')"
    expect eventually 5 waiters "$L" 1
    tell C "wait $before$L 5000 30"
    expect constantly 150 quiet C
    says A "flock(f, 'UN')" ok
    expect_is "$(hear B)" ok
    expect constantly 200 quiet C
    says A "flock(f, 'EX|NB')" EAGAIN
    says B "flock(f, 'UN')" ok
    expect_is "$(hear C)" held
    expect exists "$L"
    says A "flock(f, 'EX|NB')" EAGAIN
    says C release ok
    expect eventually 2 absent "$L"
    says A 'close(f)' ok
    says B 'close(f)' ok

    L=$name.extended
    if [ "$extends" = yes ]; then
        it "what $name extends stays held, and who waits goes on waiting"
        says C "acquire $before$L 1000" held
        says C 'extend 20000' ok
        expect_not flock -w 1.4 "$MNT/$L" true
        expect exists "$L"
        expect_between 5000 "$(remaining "$L")" 20000 remaining
        says C release ok
        expect eventually 2 absent "$L"
    fi

    L=$name.broken
    it "user.lease.break takes it from $name, whose release does not end the next one's lock"
    says C "acquire $before$L 60000" held
    expect setfattr -n user.lease.break -v 1 "$MNT/$L"
    expect absent "$L"
    says A "acquire('$L')" ok
    says C release '@(not-held|ok)' # redis-semaphore does not tell
    expect exists "$L"
    says C "acquire $before$L 5000" refused
    says A "rm('$L')" ok

    end_actor C
}

mkfifo "$TEST_DIR/go"
redis_start
mount_two
MNT=$MOUNT_B
actor B
MNT=$MOUNT_A SECOND=$MOUNT_B
actor A

# --- of Debian ---

if ! "$PYTHON" -c 'import redis' 2>/dev/null; then
    skip redis-py "no redis-py (package python3-redis)"
elif wanted redis-py; then
    client redis-py "" yes "$PYTHON" "$INTEROP/client_redis_py.py" "$REDIS_PORT"
fi
if ! php "$INTEROP/client_laravel.php" "$REDIS_PORT" </dev/null >/dev/null 2>&1; then
    skip laravel "no Laravel (packages php-cli, php-illuminate-cache, php-illuminate-redis, php-redis)"
elif wanted laravel; then
    client laravel "" no php "$INTEROP/client_laravel.php" "$REDIS_PORT"
fi

# --- of npm ---

modules=$TEST_DIR/npm
reason=
install_modules() {
    command -v node >/dev/null || { reason="no node"; return 1; }
    command -v npm >/dev/null || { reason="no npm"; return 1; }
    mkdir "$modules"
    cp "$INTEROP/package.json" "$INTEROP/package-lock.json" "$modules"
    (cd "$modules" && timeout 60 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1) \
        >"$TEST_DIR/npm.log" 2>&1 && return
    reason="npm's registry did not give it: $(grep -m 1 'npm ERR!\|npm error' "$TEST_DIR/npm.log")"
    return 1
}

npm_clients=(redlock4 redlock5 sesamecare)
if ! install_modules; then
    for name in "${npm_clients[@]}" semaphore; do ! wanted "$name" || left_out "$name of npm" "with npm's registry: $reason"; done
else
    for name in "${npm_clients[@]}"; do
        wanted "$name" && client "$name" "" yes node "$INTEROP/client_npm.js" "$name" "$REDIS_PORT" "$modules"
    done
    if wanted semaphore; then # its keys begin with mutex:
        end_actor A
        end_actor B
        mount_two 'key=mutex:{n}'
        MNT=$MOUNT_B
        actor B
        MNT=$MOUNT_A SECOND=$MOUNT_B
        actor A
        client semaphore mutex: yes node "$INTEROP/client_npm.js" semaphore "$REDIS_PORT" "$modules"
    fi
fi

finish
