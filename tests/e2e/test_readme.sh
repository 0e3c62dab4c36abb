#!/bin/bash
# README.md is true: its transcripts are what happens, its picture is what was recorded, and what it links to is there.
#
# Leaves the picture, recorded again, in tests/e2e/terminal.svg of the build directory: copy it to man/ when the session of
# record.py or what it shows has changed.
#
# Runs in namespaces of its own, so that the host is "vm", the directory is /mnt, and a Redis server has its usual port.
if [ "${README_NAMESPACES:-}" != own ] && unshare --net --mount --uts true 2>/dev/null; then
    README_NAMESPACES=own exec unshare --net --mount --uts "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "${README_NAMESPACES:-}" = own ] || skip_all "no namespaces"
[ -n "$PYTHON" ] || skip_all "no python3"
for program in redis-server redis-cli ip; do
    command -v "$program" >/dev/null || skip_all "no $program"
done

SOURCE=$(cd "$E2E_DIR/../.." && pwd)
README=$SOURCE/README.md
LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun}
picture=$TEST_DIR/terminal.svg
if [ -n "${top_builddir:-}" ]; then
    mkdir -p "$top_builddir/tests/e2e"
    picture=$(cd "$top_builddir/tests/e2e" && pwd)/terminal.svg
fi

# As a newcomer has them: commands in PATH, a stock server, and the mount that quickstart makes.
ip link set lo up
hostname vm
mkdir "$TEST_DIR/bin" "$TEST_DIR/server" "$TEST_DIR/cwd"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
ln -s "$LEASERUN" "$TEST_DIR/bin/leaserun"
PATH=$TEST_DIR/bin:$PATH
start redis-server --dir "$TEST_DIR/server" --logfile "$TEST_DIR/server/log"
expect eventually 20 grep -qs 'Ready to accept' "$TEST_DIR/server/log"
mount --bind "$TEST_DIR/cwd" /mnt
mkdir /mnt/locks
mount_at /mnt/locks "local:$TEST_DIR/store" ""
cd /mnt || exit 1

# as newcomers start it, in the background: it ends with its mount
end_transcripts() {
    local point
    for point in a b; do
        umount "/mnt/$point" || umount -l "/mnt/$point"
    done
}

"$PYTHON" -S -E "$E2E_DIR/transcript.py" "$README" >"$TEST_DIR/results"
while IFS=$'\t' read -r outcome first; do
    case $outcome in
    pass | fail)
        it "the transcript that begins with: $first"
        "$outcome" "it does not print what README shows"
        ;;
    *) say "  $first" ;;
    esac
done < <(sed 's/^\t/-\t/' "$TEST_DIR/results")
it "there are transcripts"
expect grep -q '^pass' "$TEST_DIR/results"
end_transcripts

it "the picture shows what two shells do (else: cp $picture man/)"
expect "$PYTHON" -S -E "$E2E_DIR/record.py" --check "$SOURCE/man/terminal.svg" "$picture"

it "what it links to is there"
links=$(grep -oE '\]\([^)]*\)' "$README" | tr -d '()]')
expect [ -n "$links" ]
for link in $links; do
    expect [ -e "$SOURCE/$link" ]
done

cd / || exit 1
finish
