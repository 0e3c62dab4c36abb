# shellcheck shell=bash
# visible.sh: sourced before lib.sh by a test in which the daemon must see who has files of a dead mount open.
#
# A process that nobody may look into counts as having every file open.  Where pid 1 is such a one, as in some sandboxes,
# the test starts again in a pid namespace of its own.

sees_all() { readlink /proc/1/fd/0 >/dev/null 2>&1; }

if [ "$(id -u)" = 0 ] && [ -z "${E2E_PIDS:-}" ] && ! sees_all && unshare --pid --fork --mount-proc true 2>/dev/null; then
    E2E_PIDS=1 exec unshare --pid --fork --mount-proc --kill-child "$0" "$@"
fi
