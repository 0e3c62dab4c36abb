#!/bin/bash
# What a package runs after an upgrade: the new version takes over the mounts whose copies see it, and names the others.
# shellcheck source=visible.sh
. "$(dirname "$0")/visible.sh"
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
[ "$(id -u)" = 0 ] || skip_all "needs root"
sees_all || skip_all "needs CAP_SYS_PTRACE"

# A program that is replaced, and a directory that is shared with other mount namespaces, as systemd makes the root.
install() { cp "$LEASEFS" "$TEST_DIR/bin/new" && mv "$TEST_DIR/bin/new" "$TEST_DIR/bin/leasefs"; }
mkdir "$TEST_DIR/bin" "$TEST_DIR/all"
install
ln -s leasefs "$TEST_DIR/bin/mount.leasefs"
mount -t tmpfs leasefs-test "$TEST_DIR/all"
mount --make-shared "$TEST_DIR/all"
sed "s|@bindir@|$TEST_DIR/bin|" "$top_srcdir/fs/upgrade.sh.in" >"$TEST_DIR/upgrade"
upgrade() { output=$(LEASEFS=$TEST_DIR/bin/leasefs sh "${1:-$TEST_DIR/upgrade}" 2>&1 | grep -F "$TEST_DIR"); } # not others of this machine
line() { grep "^leasefs: $TEST_DIR/all/$1:" <<<"$output"; }
daemon_of() { sed -n 's/^pid: //p' "$TEST_DIR/all/$1/.leasefs/status"; }
# mounts NAME [PROGRAM OPTION…]: as a daemon in the background.
mounts() {
    local name=$1 program=${2:-leasefs}
    mkdir -p "$TEST_DIR/all/$name"
    "$TEST_DIR/bin/$program" "local:$TEST_DIR/$name.store" "$TEST_DIR/all/$name" "${@:3}" 2>/dev/null
    remember "$TEST_DIR/all/$name" "$(daemon_of "$name")" /dev/null
    MNT=$TEST_DIR/all/$name
}
ends() { # NAME
    local daemon
    daemon=$(daemon_of "$1")
    expect umount "$TEST_DIR/all/$1"
    expect eventually 10 gone "$daemon"
    mount_index "$TEST_DIR/all/$1" && mount_daemons[INDEX]=
}

it "a mount by hand and one of fstab are taken over; leases, flocks and a leaserun keep their tokens"
mounts hand leasefs -o allow_other
mounts 'with space' mount.leasefs -o rw,allow_other,ttl=1m
MNT=$TEST_DIR/all/hand
actor A
says A 'acquire("kept"); f = op("flock", "RDWR|CREAT"); flock(f, "EX")' ok
kept=$(attribute kept token) flocked=$(attribute flock token)
# shellcheck disable=SC2016 # for the command
begin "$MNT/run" sh -c 'echo $$ >"$0"; exec sleep 300' "$TEST_DIR/run"
expect eventually 5 mark run
run=$(attribute run token)
start unshare --mount --propagation slave sleep 300 # as many services of systemd
slave=$STARTED
upgrade
expect_is "$output" "" # these daemons run the program that is installed
install
before=$(daemon_of hand)
upgrade
expect_re "$(line hand)" "has taken over from process $before "
expect_re "$(line 'with space')" 'has taken over from process'
expect_is "$(grep -c . <<<"$output")" 2
expect eventually 5 gone "$before"
expect [ "/proc/$(daemon_of hand)/exe" -ef "$TEST_DIR/bin/leasefs" ]
resumed_now() { attribute run owner | grep -qv 'daemon restarted'; }
expect eventually 5 resumed_now
expect_is "$(attribute kept token) $(attribute flock token) $(attribute run token)" "$kept $flocked $run"
expect_is "$(getfattr --only-values --absolute-names -n user.lease.ttl "$TEST_DIR/all/with space")" 60
expect nsenter --mount --target "$slave" test -e "$MNT/kept"
upgrade
expect_is "$output" ""
install
upgrade # of what was taken over once
expect_is "$(grep -c 'has taken over' <<<"$output")" 2
expect_is "$(attribute kept token) $(attribute flock token) $(attribute run token)" "$kept $flocked $run"
expect_not gone "$(pid_of run)"
kill "$(pid_of run)"
ended 143
end_process "$slave"
ends 'with space'

it "names that a user may choose, with quotes, line breaks and tabs, are taken as they are, and printed in one line"
strange=$'an \'odd\' "$HOME"\nname\e[1m'
mounts "$strange" leasefs -o allow_other
expect touch "$MNT/odd"
mkdir -p "$TEST_DIR/root"$'\t0'
# shellcheck disable=SC2016 # for another shell
start unshare --mount --propagation private sh -c 'mkdir "$1/all" && mount --rbind "$2" "$1/all" && exec "$0" -S -E -c "
import os, sys, time
os.chroot(sys.argv[1])
time.sleep(300)" "$1"' "$PYTHON" "$TEST_DIR/root"$'\t0' "$TEST_DIR/all"
strange_root=$STARTED
rooted() { [ "$(readlink "/proc/$1/root")" = "$TEST_DIR/root"$'\t0' ]; }
expect eventually 5 rooted "$strange_root"
install
before=$(daemon_of "$strange")
upgrade
expect_is "$(grep -c "goes on: a copy of the mount would lose its locks (process $strange_root)" <<<"$output")" 2
expect_is "$output" *"leasefs: $TEST_DIR/all/an 'odd' \"\$HOME\"?name?[[]1m: process $before "*
end_process "$strange_root"
for _ in 1 2; do # the second round takes over a daemon that has itself taken over
    before=$(daemon_of "$strange")
    upgrade
    expect_is "$output" *"leasefs: $TEST_DIR/all/an 'odd' \"\$HOME\"?name?[[]1m: version "*" has taken over from process $before "*
    expect_is "$(grep -c . <<<"$output")" 2
    expect [ -e "$MNT/odd" ]
    install
done
MNT=$TEST_DIR/all/hand
ends "$strange"

it "one of which a namespace without propagation has a copy goes on, and is named with the command and the process"
start unshare --mount --propagation private sleep 300
private=$STARTED
apart() { ! [ "/proc/$1/ns/mnt" -ef /proc/self/ns/mnt ]; }
expect eventually 5 apart "$private"
install
before=$(daemon_of hand)
upgrade
expect_re "$output" "^leasefs: $MNT: process $before .* goes on: a copy of the mount would lose its locks .process $private.\. To replace it: leasefs -o takeover .* $MNT -o allow_other$"
expect_is "$(daemon_of hand)" "$before"
expect nsenter --mount --target "$private" test -e "$MNT/kept"
# its command does so
eval "PATH=$TEST_DIR/bin:$PATH ${output##*: }" 2>/dev/null
expect_not [ "$(daemon_of hand)" = "$before" ]
expect_is "$(attribute kept token)" "$kept"
end_process "$private"

it "so does one with a bind mount"
mkdir "$TEST_DIR/all/bound"
expect mount --bind "$MNT" "$TEST_DIR/all/bound"
install
upgrade
expect_re "$(line hand)" 'goes on: a copy of the mount would lose its locks \(a bind mount here\)'
umount "$TEST_DIR/all/bound"

it "so does one whose daemon another program watches"
mkdir "$TEST_DIR/all/watched"
LEASEFS=$TEST_DIR/bin/leasefs mount_at "$TEST_DIR/all/watched" "local:$TEST_DIR/watched.store" ttl=1m
install
upgrade
expect_re "$(line watched)" 'another program started it and watches it'
expect_re "$(line hand)" 'has taken over'
expect unmount "$MNT"
mkdir "$TEST_DIR/all/elsewhere"
mount_at "$TEST_DIR/all/elsewhere" "local:$TEST_DIR/elsewhere.store" ""
upgrade
expect_is "$output" "" # another installation's
expect unmount "$MNT"
MNT=$TEST_DIR/all/hand

it "so does one of a version without takeover"
# shellcheck disable=SC2016 # for another shell
sed 's|^status=|status=|; s|fact takeover|fact nothing|' "$TEST_DIR/upgrade" >"$TEST_DIR/upgrade.old"
install
upgrade "$TEST_DIR/upgrade.old"
expect_re "$(line hand)" "goes on: its version has no takeover. To restart it: umount $MNT && leasefs local:"

name="a unit of systemd is reloaded, and named by its restart"
if mkdir -p /sys/fs/cgroup/unified/leasefs@test.service 2>/dev/null || mkdir -p /sys/fs/cgroup/leasefs@test.service 2>/dev/null; then
    it "$name"
    group=/sys/fs/cgroup/unified/leasefs@test.service
    [ -d "$group" ] || group=/sys/fs/cgroup/leasefs@test.service
    before=$(daemon_of hand)
    echo "$before" >"$group/cgroup.procs"
    printf '#!/bin/sh\nset -eu\ncase $* in\n"show --value -p MainPID leasefs@test.service") cat %s ;;\n"reload leasefs@test.service") echo "$*" >>%s; exec %s -o takeover,allow_other local:%s %s ;;\nesac\n' \
        "$TEST_DIR/main" "$TEST_DIR/reloaded" "$TEST_DIR/bin/leasefs" "$TEST_DIR/hand.store" "$MNT" >"$TEST_DIR/bin/systemctl"
    chmod 755 "$TEST_DIR/bin/systemctl"
    echo "$before" >"$TEST_DIR/main"
    PATH=$TEST_DIR/bin:$PATH
    upgrade "$TEST_DIR/upgrade.old"
    expect_re "$(line hand)" 'has no takeover. To restart it: systemctl restart leasefs@test.service$'
    upgrade
    expect_re "$(line hand)" 'has taken over'
    expect_is "$(cat "$TEST_DIR/reloaded")" "reload leasefs@test.service"
    expect_is "$(attribute kept token)" "$kept"
    rmdir "$group"
else
    left_out "$name" "with control groups that can be written to"
fi
says A 'rm("kept")' ok
end_actor A
ends hand
finish
