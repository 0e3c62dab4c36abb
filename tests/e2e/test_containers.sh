#!/bin/bash
# Locks and pid namespaces: each idiom, run by the first process of a container that has the daemon in it; by one whose
# daemon is outside, on its host; by one whose daemon is in yet another namespace; and on the host.  The table is in
# leasefs(8), CONTAINERS.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v unshare >/dev/null || skip_all "no unshare"

export LEASERUN=${LEASERUN:-$(dirname "$LEASEFS")/leaserun} LEASEFS
IDIOMS=$TEST_DIR/idioms
install -m 755 "$E2E_DIR/containers/idioms" "$IDIOMS"
own_namespace=(unshare --pid --fork --kill-child --mount-proc)
declare -A answer=() known=()
declare -a rows=()

# results PLACE FILE: what the idioms told there.
results() {
    local name
    expect eventually 20 grep -qs '^done$' "$2"
    while read -r name; do
        [ "$name" != done ] || break
        answer[${name% *}.$1]=${name##* }
        [ -n "${known[${name% *}]:-}" ] || rows+=("${name% *}")
        known[${name% *}]=yes
    done <"$2"
}

# expect_all PLACE [EXCEPTION…]: yes everywhere, but no for these.
expect_all() {
    local row expected
    for row in "${rows[@]}"; do
        expected=yes
        case "|$(printf '%s|' "${@:2}")" in *"|$row|"*) expected=no ;; esac
        expect_is "${answer[$row.$1]:-nothing}" "$expected" "$row ($1)"
    done
}

it "on the host every idiom works"
mount_memory ttl=1
HOST=$MNT
start bash "$IDIOMS" "$HOST" "$TEST_DIR/host"
results host "$TEST_DIR/host"
expect_all host

it "process 1 of a container whose locks are mounted on the host owns what it takes, and keeps what its touch took"
mkdir "$HOST/inner"
start "${own_namespace[@]}" bash "$IDIOMS" "$HOST/inner" "$TEST_DIR/outside"
results outside "$TEST_DIR/outside"
expect_all outside

it "so does process 1 of a container in which leasefs runs"
mkdir "$TEST_DIR/within"
# shellcheck disable=SC2016
start "${own_namespace[@]}" bash -c '
    "$LEASEFS" -o ttl=1 memory "$1" && bash -c : && . "$2" "$1" "$3"; cd /; umount "$1"' \
    _ "$TEST_DIR/within" "$IDIOMS" "$TEST_DIR/inside"
results inside "$TEST_DIR/inside"
expect_all inside

it "a mount that serves another pid namespace keeps leases only while their handle is open, and says so once"
mkdir "$TEST_DIR/shared"
mount --bind "$TEST_DIR/shared" "$TEST_DIR/shared" && mount --make-shared "$TEST_DIR/shared"
mkdir "$TEST_DIR/shared/mnt"
# shellcheck disable=SC2016
mount_at "$TEST_DIR/shared/mnt" memory ttl=1 unshare --mount --propagation unchanged --pid --fork --kill-child \
    sh -c 'mount --make-rprivate /proc; mount -t proc proc /proc && exec "$@"' sh
start bash "$IDIOMS" "$MNT" "$TEST_DIR/foreign"
results foreign "$TEST_DIR/foreign"
expect_all foreign 'touch L && echo $$ >L' "touch L: kept while the shell lives" ">L: kept while the shell lives"
actor F
says F 'f = op("open", "WRONLY|CREAT|EXCL")' ok
expect constantly 3000 exists open
says F 'close(f)' ok
expect eventually 5 absent open
expect_is "$(grep -c 'another pid namespace' "$LOG")" 1
expect grep -q '^warning: processes of another pid namespace' "$MNT/.leasefs/status"
end_actor F

it "leasefs whose /proc is of another pid namespace refuses to start, and says why"
new_mountpoint
expect_not unshare --pid --fork --kill-child "$LEASEFS" -f memory "$MNT" 2>"$TEST_DIR/refused"
expect grep -q '/proc is not that of this pid namespace.*unshare --mount-proc' "$TEST_DIR/refused"

it "the table in leasefs(8) is that of this test"
page=$(cd "$(dirname "$0")/../.." && cat man/leasefs.8)
for row in "${rows[@]}"; do
    expect grep -qxF ".It ${row//\\/} Ta ${answer[$row.host]} Ta ${answer[$row.outside]} Ta ${answer[$row.inside]} Ta ${answer[$row.foreign]}" <<<"$page"
done

say "$(printf '%-40s %-6s %-8s %-8s %s' idiom host outside inside foreign)"
for row in "${rows[@]}"; do
    say "$(printf '%-40s %-6s %-8s %-8s %s' "$row" "${answer[$row.host]}" "${answer[$row.outside]}" "${answer[$row.inside]}" "${answer[$row.foreign]}")"
done
finish
