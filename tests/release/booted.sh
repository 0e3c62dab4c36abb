#!/bin/bash
# booted.sh: what holds on a booted system, told on its console, each line after "@@ ".  Run there by systemd, on the
# system that boot.sh has made; ends with a reboot, and after that with the end.
# shellcheck source=system.sh
. /root/leasefs/tests/release/system.sh
STATE=/root/booted
UNIT=leasefs@mnt-unit.service

of_unit() { systemctl show --value -p "$1" "${2:-$UNIT}"; }
is() { [ "$(of_unit "$1" "${3:-$UNIT}")" = "$2" ]; }
mounted() { [ "$(findmnt -n -o FSTYPE "$1")" = fuse.leasefs ]; }
another() { # PID: the unit has another process by now, which answers
    is ActiveState active && ! is MainPID "$1" && timeout 5 stat -f /mnt/unit >/dev/null
}
secure_shell() { timeout 300 ssh -o StrictHostKeyChecking=no -o LogLevel=ERROR "$@" </dev/null 2>&1; }
MNT=/mnt/unit

say "Linux $(uname -r), $(systemctl --version | head -1), $(leasefs --version | head -1)"

if [ -e "$STATE" ]; then
    it "after the reboot leases with a term are there again, with all of it"
    expect eventually 60 mounted /mnt/unit
    expect exists term
    expect_between 500000 "$(remaining term)" 600000
    it "leases of processes that the reboot has ended run out"
    MNT=/mnt/local
    expect eventually 40 absent reboot
    it "the shutdown before it ended the daemons with their mounts, in good order"
    expect_is "$(journalctl -b -1 -u $UNIT -o cat | tail -3)" "*Deactivated successfully.*Stopped leasefs@mnt-unit.service*"
    expect_is "$(journalctl -b -1 -o cat | grep -E 'mnt-[a-z]+.mount: (Failed|Mount process|Unmounting timed out)' | grep -v mnt-away)" ""
    end_system poweroff
fi
: >"$STATE"

it "the lines of fstab are mounted at boot, as leasefs and as fuse.leasefs; without nofail before local-fs.target"
expect mounted /mnt/local
expect mounted /mnt/fuse
expect is ActiveState active mnt-local.mount
expect [ "$(of_unit ActiveEnterTimestampMonotonic mnt-fuse.mount)" -le "$(of_unit ActiveEnterTimestampMonotonic local-fs.target)" ]

it "nofail: a line whose server is away fails alone, and the boot goes on"
expect eventually 60 is ActiveState active multi-user.target
expect is ActiveState failed mnt-away.mount
expect_not mounted /mnt/away
expect_is "$(journalctl -b -o cat | grep 'cannot connect')" "*127.0.0.1*"

it "background: a Redis server that starts later is found"
expect mounted /mnt/redis
expect eventually 60 grep -q '^state: connected' /mnt/redis/.leasefs/status
expect touch /mnt/redis/l
expect rm /mnt/redis/l

it "the unit is up, and has told that it is"
expect eventually 60 is ActiveState active
expect mounted /mnt/unit
expect_is "$(of_unit StatusText)" "local mounted on /mnt/unit"

it "Debian's sysctls: another user's lock in the top directory can be waited for"
expect_is "$(sysctl -n fs.protected_regular)" 2
start setpriv --reuid=12345 --regid=12345 --clear-groups flock /mnt/unit/users sleep 3
expect eventually 5 exists users
expect timeout 20 setpriv --reuid=65534 --regid=65534 --clear-groups flock /mnt/unit/users true
expect timeout 20 flock /mnt/unit/users true

it "Restart=: a daemon that is killed is there again, and leases belong to whom they did"
expect touch /mnt/unit/kept
before=$(of_unit MainPID)
kill -9 "$before"
expect eventually 20 another "$before"
expect exists kept
expect_not sh -c 'touch /mnt/unit/kept' 2>/dev/null
expect is NRestarts 1

it "WatchdogSec=: so is one that does not answer"
before=$(of_unit MainPID)
kill -STOP "$before"
expect eventually 40 another "$before"
expect exists kept
expect journalctl -q -b -u $UNIT -g 'Watchdog timeout' -n 1

it "systemctl restart, and stop and start: the same"
expect systemctl restart $UNIT
expect exists kept
expect systemctl stop $UNIT
expect_not mounted /mnt/unit
expect systemctl start $UNIT
expect exists kept
expect rm /mnt/unit/kept
expect_is "$(findmnt -n /mnt/unit | wc -l)" 1

it "mount -o remount,ttl="
expect mount -o remount,ttl=7s /mnt/unit
expect_is "$(getfattr --only-values --absolute-names -n user.lease.ttl /mnt/unit)" 7
expect setfattr -n user.lease.ttl -v auto /mnt/unit

it "umount ends the service, without a failure; so does umount of a line of fstab"
expect umount /mnt/unit
expect eventually 10 is ActiveState inactive
expect systemctl start $UNIT
expect umount /mnt/fuse
expect eventually 10 is ActiveState inactive mnt-fuse.mount
expect mount /mnt/fuse
expect mounted /mnt/fuse

it "a wrong option ends in failed, and not in an endless series of starts"
expect_not systemctl start leasefs@mnt-wrong
expect eventually 60 is ActiveState failed leasefs@mnt-wrong
expect_between 1 "$(of_unit NRestarts leasefs@mnt-wrong)" 10
expect journalctl -q -b -u leasefs@mnt-wrong -g nosuchoption -n 1

it "what a lease's owner did not give back is told as a notice, with what helps"
start bash -c "touch /mnt/unit/forgotten; setfattr -n user.lease.ttl -v 1s /mnt/unit/forgotten; setfattr -n user.lease.ttl -v auto /mnt/unit/forgotten; sleep 1.3"
expect eventually 10 exists forgotten
expect eventually 60 absent forgotten
expect eventually 10 journalctl -q -b -u $UNIT -p notice..notice -g 'forgotten: .*leaserun LOCK COMMAND' -n 1

MNT=/mnt/local

it "a parent that is in execve(2) at that moment inherits: a hundred times"
handed_on() { # PID: it has become another program, and its child has ended
    local child
    [ "$(cat "/proc/$1/comm")" = sleep ] || return
    for child in $(cat "/proc/$1/task/$1/children"); do gone "$child" || return; done
}
quick=()
for i in {1..100}; do
    now
    from=$NOW
    start bash -c "(set -C; : >/mnt/local/exec.$i) & exec sleep 300"
    expect eventually 30 handed_on "$STARTED"
    now
    [ $((NOW - from)) -ge 900 ] || quick+=("exec.$i")
done
say "${#quick[@]} of 100 took less than a second, as a helper has to"
expect [ "${#quick[@]}" -gt 0 ]
all_there() { local name; for name in "${quick[@]}"; do exists "$name" || { say "$name is gone: $(journalctl -b -o cat -g "$name:")"; return 1; }; done; }
expect constantly 15000 all_there

it "sshd: what a command took ends one term after it, and is kept while it runs, on a terminal too"
expect secure_shell localhost touch /mnt/local/ssh.left
expect eventually 40 absent ssh.left
start secure_shell localhost 'touch /mnt/local/ssh.kept; timeout 5 touch /mnt/local/ssh.helper; until [ -e /root/end ]; do sleep 1; done'
start secure_shell -tt localhost 'touch /mnt/local/ssh.terminal; until [ -e /root/end ]; do sleep 1; done'
for name in ssh.kept ssh.helper ssh.terminal; do expect eventually 60 exists $name; done
kept() { exists ssh.kept && exists ssh.helper && exists ssh.terminal; }
expect constantly 12000 kept
: >/root/end
for name in ssh.kept ssh.helper ssh.terminal; do expect eventually 60 absent $name; done

it "cron: what a job took is kept while it runs, and ends one term after it"
expect eventually 130 exists cron.kept
expect constantly 12000 exists cron.kept
expect [ -s /root/cron.done ]
expect eventually 40 absent cron.left
expect eventually 60 absent cron.kept

# 41 is socket(2), of a look-up of a host name: see SECURITY CONSIDERATIONS of leasefs(8).
it "the kernel has nothing to say: no other system call of ours was refused, nothing crashed"
expect_is "$(journalctl -b -k -o cat | grep -iE 'type=1326|segfault|leasefs.*(trap|general protection)|hung task' | grep -v 'syscall=41 ')" ""

while read -r name; do
    run_test "$name"
done < <(cat /root/leasefs/to-run 2>/dev/null)

it "two leases for after the reboot"
start bash -c 'touch /mnt/local/reboot; exec sleep 1000'
expect eventually 5 exists reboot
MNT=/mnt/unit
expect touch /mnt/unit/term
expect setfattr -n user.lease.ttl -v 10m /mnt/unit/term
pause 1.3
end_system reboot
