#!/bin/bash
# The tests of what a mount is, once more on mounts of a Redis server.  Left out are
# those of the local store itself (durability, a full disk, restarts), and those
# that are about the daemon more than about the store.
#
# Each case of each script is a case here; what a script said stands before them.
SCRIPTS=(acquire directory expire fcntl flock guard link provisional read release sequence wait)
AT_ONCE=4 # they mostly wait

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for script in "${SCRIPTS[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$AT_ONCE" ]; do
        wait -n
    done
    { E2E_STORE=redis "$(dirname "$0")/test_$script.sh" >"$scratch/$script" 2>&1 || echo "status $?" >>"$scratch/$script"; } &
done
wait

for script in "${SCRIPTS[@]}"; do
    # a script that ended without its plan is a case that failed
    awk -v name="$script" '
        /^(not )?ok [0-9]+/ { sub(/ok [0-9]+ - /, "ok - " name ": ") }
        /^1\.\.[0-9]+/ { planned = !/^1\.\.0/; next }
        /^(not ok|ok)/ { cases++; if (/^not/) failed++ }
        /^Bail out!|^status / { $0 = "# " name ": " $0; broken = 1 }
        { print /^(not ok|ok|#)/ ? $0 : "# " $0 }
        END { if (!planned || broken && !failed) print "not ok - " name ": ended early" }' "$scratch/$script"
done | awk '/^(not )?ok/ { sub(/ok/, "ok " ++cases); if (/^not/) failed++ } { print } END { print "1.." cases; exit failed > 0 }'
