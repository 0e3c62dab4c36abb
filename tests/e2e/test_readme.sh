#!/bin/bash
# README.md, docs/ and the examples of the manuals of leasefs are true: their transcripts are what happens, the scripts that they quote are the recipes, and the picture
# is what was recorded.
#
#   tests/e2e/test_readme.sh [DOCUMENT]...     only these documents; by default README.md and all of docs/
#
# Leaves the picture, recorded again, in tests/e2e/terminal.svg of the build directory: copy it to docs/ when the session of
# record.py or what it shows has changed.
#
# Runs in namespaces of its own, so that the host is "vm", the directory is /mnt, the user's is /home/you, and a Redis server
# has its usual port.
if [ "${README_NAMESPACES:-}" != own ] && unshare --net --mount --uts true 2>/dev/null; then
    README_NAMESPACES=own exec unshare --net --mount --uts "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "${README_NAMESPACES:-}" = own ] || skip_all "no namespaces"
[ -n "$PYTHON" ] || skip_all "no python3"
for program in redis-server redis-cli ip getfattr; do
    command -v "$program" >/dev/null || skip_all "no $program"
done

SOURCE=$(cd "$E2E_DIR/../.." && pwd)
LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun}
picture=$TEST_DIR/terminal.svg
if [ -n "${top_builddir:-}" ]; then
    mkdir -p "$top_builddir/tests/e2e"
    picture=$(cd "$top_builddir/tests/e2e" && pwd)/terminal.svg
fi
documents=("$@")
[ $# -gt 0 ] || documents=("$SOURCE/README.md" "$SOURCE"/docs/*.md)

# As a newcomer has them: commands in PATH, a stock server, and stores where root's are.
ip link set lo up
hostname vm
mkdir "$TEST_DIR/bin" "$TEST_DIR/server"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
ln -s "$LEASERUN" "$TEST_DIR/bin/leaserun"
export PATH=$TEST_DIR/bin:$PATH HOME=/home/you
unset MAKEFLAGS MAKELEVEL MFLAGS # of make check; a document runs make, too
start redis-server --appendonly yes --dir "$TEST_DIR/server" --logfile "$TEST_DIR/server/log"
expect eventually 20 grep -qs 'Ready to accept' "$TEST_DIR/server/log"
mount -t tmpfs none /home
mount -t tmpfs none /var/lib

# The mounts that a document's commands have left, as newcomers leave them in the background.  Each ends its daemon.
end_mounts() {
    local point
    while read -r point; do
        umount "$point" || umount -l "$point"
    done < <(awk '$3 == "fuse.leasefs" && $2 ~ "^(/mnt|/home)/" { print $2 }' /proc/self/mounts)
}

# Runs a document in empty directories, with a mount as quickstart makes it at locks/.
run_document() { # DOCUMENT RESULTS
    redis-cli flushall >/dev/null
    mount -t tmpfs none /mnt
    mkdir -p /mnt/locks "$HOME"
    (
        cd /mnt || exit 1
        leasefs "local:/mnt/.store" /mnt/locks
        "$PYTHON" -S -E "$E2E_DIR/transcript.py" "$1" >"$2"
    )
    end_mounts
    umount -l /mnt
    rm -rf "$HOME"
}

for document in "${documents[@]}"; do
    if grep -q '^```console' "$document"; then
        run_document "$document" "$TEST_DIR/results"
        while IFS=$'\t' read -r outcome first; do
            case $outcome in
            pass | fail)
                it "${document##*/}: the transcript that begins with: $first"
                "$outcome" "it does not print what ${document##*/} shows"
                ;;
            *) say "  $first" ;;
            esac
        done < <(sed 's/^\t/-\t/' "$TEST_DIR/results")
    fi

    if grep -q '^```sh' "$document"; then
        it "${document##*/}: a script that it quotes is the one of recipes/ with that name"
        expect "$PYTHON" -S -E "$E2E_DIR/quoted.py" "$document" "$E2E_DIR/recipes"
    fi
done

# Runs an example at a prompt in locks/, where another holds the lock "shared" for a moment.
run_example() { # EXAMPLE
    local status=0
    flock /mnt/locks/shared sleep 1 &
    eventually 5 [ -e /mnt/locks/shared ]
    case $1 in
    with*) timeout 20 "$PYTHON" -S -E -c "import os"$'\n'"$1" >/dev/null || status=$? ;;
    *) timeout 20 bash -eu -c "$1" >/dev/null || status=$? ;;
    esac
    wait $!
    for lock in /mnt/locks/*; do
        [ ! -f "$lock" ] || setfattr -n user.lease.break -v 1 "$lock"
    done 2>/dev/null
    return "$status"
}

if [ $# -eq 0 ]; then
    mount -t tmpfs none /mnt
    mkdir -p /mnt/locks
    leasefs "local:/mnt/.store" /mnt/locks
    # which the examples run
    for program in make-backup print-report command backup scheduler encode transfer store ...; do
        printf '#!/bin/sh\necho "$*" >/mnt/ran\n' >"$TEST_DIR/bin/$program"
        chmod +x "$TEST_DIR/bin/$program"
    done
    cd /mnt/locks || exit 1
    while IFS= read -r -d '' example; do
        case $example in
        '# '*) continue ;; # for root, with servers and a device that are not here
        '$ '*) lines=("${example//'$ '/}") ;;
        *' * * * '*) lines=("${example#*'* * *  '}") && lines=("${lines[0]%$'\n'}; grep -e --all /mnt/ran") ;; # a crontab
        *--loop*) lines=("rm -f /mnt/ran; timeout 2 ${example%$'\n'} || [ \$? = 124 ]; [ -e /mnt/ran ]") ;;
        *'| jq '*)
            command -v jq >/dev/null || continue
            lines=("touch /mnt/locks/backup; [ \"\$(${example%$'\n'})\" = vm ]")
            ;;
        *'shared command'*) mapfile -t lines <<<"${example%$'\n'}" ;; # a line each
        setfattr* | getfattr* | *--break*) lines=("touch L; $example") ;;
        *) lines=("$example") ;;
        esac
        for line in "${lines[@]}"; do
            it "an example: ${line%%$'\n'*}"
            expect run_example "$line"
        done
    done < <(examples leasefs.7 "EXAMPLES TO START WITH"
        examples leasefs.8 EXAMPLES
        examples leasefs-monitoring.7 EXAMPLES
        examples leaserun.1 EXAMPLES)
    cd / || exit 1
    end_mounts
    umount -l /mnt

    redis-cli flushall >/dev/null
    { cat /etc/hosts; echo 127.0.0.1 db; } >"$TEST_DIR/hosts"
    mount --bind "$TEST_DIR/hosts" /etc/hosts
    it "the picture shows what two hosts do (else: cp $picture docs/)"
    expect "$PYTHON" -S -E "$E2E_DIR/record.py" --check "$SOURCE/docs/terminal.svg" "$picture"
fi

cd / || exit 1
finish
