#!/bin/bash
# A daemon in a container that starts again: its locks survive that in the host's pid namespace, and else end with the
# container.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=redis.sh
. "$(dirname "$0")/redis.sh"
sees_all || skip_all "needs CAP_SYS_PTRACE"
export LEASEFS
own_pids=(unshare --pid --fork --kill-child --mount-proc)

# The mount point is one that containers share, as that of a CSI driver.
mkdir "$TEST_DIR/shared"
mount --bind "$TEST_DIR/shared" "$TEST_DIR/shared" && mount --make-shared "$TEST_DIR/shared"
mkdir "$TEST_DIR/shared/mnt"
point=$TEST_DIR/shared/mnt

# The daemon in a container of its own; the container ends with it.
container() { # STORE [PREFIX COMMAND…]
    mount_at "$point" "$1" allow_other,ttl=4 "${@:2}" unshare --mount --propagation unchanged
}
container_ends() {
    mount_index "$point"
    end_process "$(sed -n 's/^pid: //p' "$point/.leasefs/status")" # as the host knows it, if it is in its namespace
    end_process "$DAEMON"
    mount_daemons[INDEX]=
}

redis_start
for kind in "local:$TEST_DIR/store" "$REDIS_URI"; do
    it "with the host's pid namespace locks survive a restart of the container (${kind%%:*})"
    container "$kind"
    [ -n "${E2E_PIDS:-}" ] || expect_not grep -q 'pid namespace' "$LOG"
    actor A
    says A 'acquire("lease"); f = op("flock", "RDWR|CREAT"); flock(f, "EX")' ok
    token=$(attribute flock token)
    container_ends
    container "$kind"
    expect_is "$(attribute flock token)" "$token"
    expect constantly 6000 exists lease
    expect_is "$(attribute flock token)" "$token"
    end_actor A
    expect eventually 10 absent flock
    expect eventually 10 absent lease
    container_ends
    umount -l "$point"
done

it "in a pid namespace of its own the log says that locks end with the container, and they do"
# What the container's first process does: it takes a lock through the daemon in it.
cat >"$TEST_DIR/first" <<'END'
"$LEASEFS" -o ttl=4,log=notice "$1" "$2" 2>"$3.log" && { exec 9>"$2/flock"; flock 9; until touch "$2/lease"; do sleep 0.1; done; : >"$3"; sleep 300; }
END
chmod 755 "$TEST_DIR/first"
mkdir "$TEST_DIR/mnt.own"
in_container() { # NAME
    start "${own_pids[@]}" --mount --propagation slave bash "$TEST_DIR/first" "$REDIS_URI" "$TEST_DIR/mnt.own" "$TEST_DIR/$1"
    expect eventually 20 [ -e "$TEST_DIR/$1" ]
}
mount_redis allow_other,ttl=4
in_container one
expect grep -q "in a pid namespace of its own: when that ends.*hostPID" "$TEST_DIR/one.log"
expect_is "$("${own_pids[@]}" "$LEASEFS" redis://127.0.0.1:1 "$TEST_DIR/mnt.own" 2>&1 | wc -l)" 1 # a mount that fails has only its error
expect exists flock
one=$(attribute flock token)
end_process "$STARTED"
now
ended=$NOW
in_container two # it waits until the term is over, because it is another mount
now
expect_between 1500 $((NOW - ended)) $((5000 + SLACK))
expect [ "$(attribute flock token)" -gt "$one" ]
end_process "$STARTED"
expect eventually 10 absent flock
expect eventually 10 absent lease
finish
