# shellcheck shell=bash
# attack.sh: two real users for the tests in which somebody tries to break, read, take over, exhaust or hang the locks
# of somebody else.  Sourced instead of lib.sh:
#
#     . "$(dirname "$0")/attack.sh"
#     mount_memory allow_other
#     attacker A; victim V        # partners, as those of actor
#     as "$MALLORY" touch "$MNT/x" # a command as that user
#
# It promises: ALICE (the victim) and MALLORY (the attacker) are names of users that are in the system's database, each
# with a group of its own, that no process had before; they are gone when the test ends, however that ends.
# tests/e2e/redis.sh may be sourced after it.

# shellcheck source=../e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../e2e/lib.sh"
command -v useradd >/dev/null || skip_all "no useradd (package passwd)"
command -v setpriv >/dev/null || skip_all "no setpriv (package util-linux)"

ALICE=lfs-a-$$
MALLORY=lfs-m-$$

drop_users() {
    local user
    for user in "$ALICE" "$MALLORY"; do
        pkill -9 -U "$user"
        userdel -f "$user"
    done >/dev/null 2>&1
}

leave_attack() {
    local status=$?
    drop_users
    (exit "$status")
    on_exit
}
trap leave_attack EXIT

for user in "$ALICE" "$MALLORY"; do
    useradd --no-create-home --no-log-init --user-group --home-dir /nonexistent --shell /bin/sh "$user" 2>>"$TEST_DIR/useradd" ||
        { sed 's/^/# /' "$TEST_DIR/useradd"; exit 1; }
done

# as USER COMMAND…: with the user's uid, gid and groups, and nothing else of root's.
as() {
    setpriv --reuid="$1" --regid="$1" --init-groups --inh-caps=-all -- "${@:2}"
}

victim() { actor "$1" setpriv --reuid="$ALICE" --regid="$ALICE" --init-groups --inh-caps=-all --; }     # NAME
attacker() { actor "$1" setpriv --reuid="$MALLORY" --regid="$MALLORY" --init-groups --inh-caps=-all --; } # NAME
