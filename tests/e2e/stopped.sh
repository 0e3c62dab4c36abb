# shellcheck shell=bash
# stopped: every kind of call on the mount $MNT while its servers stand still.  Is read behind lib.sh.

# stopped_calls MS SERVER…: the calls are answered within MS and SLACK milliseconds.
stopped_calls() {
    local limit calls
    limit=$(awk "BEGIN { print ($1 + $SLACK) / 1000 }")
    shift
    rm -f "$TEST_DIR/go"
    mkfifo "$TEST_DIR/go"
    "$PYTHON" "$(dirname "$0")/stopped.py" "$MNT" "$limit" <"$TEST_DIR/go" \
        >"$TEST_DIR/answers" 2>&1 &
    calls=$!
    exec 6>"$TEST_DIR/go"
    expect eventually 60 grep -q ready "$TEST_DIR/answers"
    kill -STOP "$@"
    echo go >&6
    expect wait "$calls"
    kill -CONT "$@"
    exec 6>&-
    sed 's/^/# /' "$TEST_DIR/answers"
}
