#!/bin/bash
# confined.sh: runs the tests that the kernel's argument confined= names, with a daemon that AppArmor confines.  Run by systemd
# on the system that apparmor.sh has made; says all on its console, each line after "@@ ".
# shellcheck source=system.sh
. /root/leasefs/tests/release/system.sh
IFS=, read -ra tests < <(sed -n 's/.*confined=\([^ ]*\).*/\1/p' /proc/cmdline)
sysctl -qw kernel.printk_ratelimit=0 kernel.printk="1 4 1 1" # or denials are lost
MODE=enforce
[ ! -e /etc/apparmor.d/force-complain/leasefs ] || MODE=complain
MNT=/mnt/locks
mkdir -m 555 $MNT
mkdir /srv/locks

# What the kernel denied leasefs since the last call, a line for each kind, in $DENIED.
seen=0
denials() {
    journalctl -b -k -o cat | grep -E 'apparmor="(DENIED|ALLOWED)".*profile="leasefs' >"$TEST_DIR/denials"
    DENIED=$(tail -n +$((seen + 1)) "$TEST_DIR/denials" |
        sed 's/.*apparmor=/apparmor=/; s/ pid=[0-9]*//; s/leasefs-e2e\.[A-Za-z0-9]*/leasefs-e2e.X/g' | sort | uniq -c)
    seen=$(wc -l <"$TEST_DIR/denials")
}
expect_denied() { # PATTERN
    denials
    expect_is "$DENIED" "$1" "the kernel's denials"
}

say "Linux $(uname -r), $(apparmor_parser --version | head -1), $(leasefs --version | head -1)"

it "the daemon and the process that unmounts are confined"
expect leasefs memory $MNT
for pid in $(pgrep -f "leasefs memory $MNT"); do
    expect_is "$(cat "/proc/$pid/attr/current")" "leasefs ($MODE)" "$(cat "/proc/$pid/comm")"
done
expect touch $MNT/l
expect umount $MNT

it "so is that of the unit"
expect systemctl start leasefs@mnt-locks
expect_is "$(cat "/proc/$(systemctl show --value -p MainPID leasefs@mnt-locks)/attr/current")" "leasefs ($MODE)"
expect touch $MNT/l
expect rm $MNT/l
expect systemctl stop leasefs@mnt-locks
expect_denied ""

if [ $MODE = enforce ]; then
    it "a store in a directory that the profile does not allow: the message, the kernel's line and the cure of docs/troubleshooting.md"
    expect_not leasefs local:/srv/locks/store $MNT 2>"$TEST_DIR/said"
    expect_is "$(cat "$TEST_DIR/said")" "*/srv/locks/store*Permission denied*"
    expect_denied '*apparmor="DENIED"*profile="leasefs"*name="/srv/locks/store/"*'
    cp /etc/apparmor.d/local/leasefs "$TEST_DIR/local"
    printf '/srv/locks/ rw,\n/srv/locks/** rwk,\n' >>/etc/apparmor.d/local/leasefs
    expect apparmor_parser -r /etc/apparmor.d/leasefs
    expect leasefs local:/srv/locks/store $MNT
    expect touch $MNT/l
    expect umount $MNT
    cp "$TEST_DIR/local" /etc/apparmor.d/local/leasefs
    expect apparmor_parser -r /etc/apparmor.d/leasefs
    expect_denied ""

    it "messages reach any file to which the caller has sent them"
    leasefs nosuchstore $MNT 2>/srv/locks/errors
    expect_is "$(cat /srv/locks/errors)" "*nosuchstore*"
    expect_denied ""
fi

for name in "${tests[@]}"; do
    run_test "$name"
    expect_denied ""
done

end_system poweroff
