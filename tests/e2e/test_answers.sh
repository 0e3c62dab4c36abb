#!/bin/bash
# An answer comes after its effect: when an operation that gives a lock back has returned, the next call on any mount sees it.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"

[ -n "$PYTHON" ] || skip_all "no python3"
export ANSWERS_ROUNDS=${E2E_ROUNDS:-150}

never_wrong() { # STORE MOUNTPOINT…
    local store=$1 name wrong rounds
    shift
    while read -r name wrong rounds; do
        it "$store: ${name//-/ }: nothing of it is left when it has returned"
        expect_is "$wrong of $rounds" "0 of $ANSWERS_ROUNDS" "$name: wrong"
    done < <("$PYTHON" -S -E "$E2E_DIR/answers.py" "$@" 2> >(sed 's/^/# /' >&2))
}

mount_memory ttl=30
never_wrong memory "$MNT"
it "a release does not wait for ever for who removes or renames the name, who waits for its file"
expect_between 0 "$(timeout -s KILL 60 "$PYTHON" -S -E "$E2E_DIR/crossings.py" "$MNT" 2000 || echo 60000)" $((20 + SLACK)) "milliseconds"
mount_local "$TEST_DIR/store" ttl=30
never_wrong local "$MNT"
redis_start
mount_two ttl=30
never_wrong Redis "$MOUNT_A" "$MOUNT_B"

finish
