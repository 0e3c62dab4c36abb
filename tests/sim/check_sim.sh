#!/bin/bash
# The simulator: the same seed gives the same world, whatever else is different; and in 200 worlds no daemon crashes,
# hangs or answers twice, and the judge has nothing to say.  SIM_TIMES: that many times as many worlds; SIM_FIRST: their first seed.
set -u
cd "${top_builddir:-.}"
sim=tests/sim/sim
number=0
failed=0

tell() { # STATUS DESCRIPTION
    number=$((number + 1))
    if [ "$1" = 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        failed=1
    fi
}

for store in memory local sync redis zookeeper sentinel redlock; do
    status=0
    for seed in 1 2; do
        first=$($sim -1 $seed -s $store -t -o 300)
        second=$(SOMETHING_ELSE=there $sim -1 $seed -s $store -t -o 300)
        case $first in *sum\ 0000000000000000 | '') echo "# seed $seed did not end"; status=1 ;; esac
        [ "$first" = "$second" ] || { echo "# seed $seed has two traces"; status=1; }
    done
    tell $status "the same seed gives the same trace, byte for byte ($store)"
done

worlds() { # STORE COUNT
    local count=$(($2 * ${SIM_TIMES:-1}))
    said=$($sim -n $count -f "${SIM_FIRST:-1}" -s "$1" -o 300 -q)
    printf '%s\n' "$said" | grep '^seed' | sed 's/^/# /'
    printf '%s\n' "$said" | grep -q '^# worlds' && ! printf '%s\n' "$said" | grep -q '^seed'
    tell $? "$count worlds with faults are well ($1)"
}
worlds memory 50
worlds local 50
worlds sync 40
worlds redis 10
worlds zookeeper 30
worlds sentinel 10
worlds redlock 10

said=$($sim -n 150 -s failover -o 300 -q)
printf '%s\n' "$said" | grep -qE '^seed [0-9]*: (exclusive|shared|range|width|loss|unseen|number|token-)'
tell $? "without wait= the same faults take locks, or numbers, from who holds them"

echo "1..$number"
exit $failed
