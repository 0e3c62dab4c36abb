#!/bin/bash
# systemctl reload of the unit, with a service manager of its own (systemd --user).
if [ "$(id -u)" -eq 0 ] && [ -z "${E2E_NAMESPACE:-}" ] && unshare --mount --pid --fork --mount-proc true 2>/dev/null; then
    # shellcheck disable=SC2016
    E2E_NAMESPACE=1 exec unshare --mount --pid --fork --mount-proc --kill-child sh -c \
        'mount -t tmpfs leasefs-test /run && mkdir -p /run/systemd/system && exec "$0" "$@"' "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=leaserun.sh
. "$(dirname "$0")/leaserun.sh"
[ -n "${E2E_NAMESPACE:-}" ] || skip_all "no namespaces"
command -v systemd-escape >/dev/null && [ -x /lib/systemd/systemd ] || skip_all "no systemd"
# There it has no control groups, and ended the processes of the caller, too.
[ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || [ "$(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')" -lt 256 ] ||
    skip_all "systemd 256 or later without the unified hierarchy of control groups"
SOURCES=$(cd "$(dirname "$0")/../.." && pwd)

MNT=/run/my-locks # in the namespace's own /run; the hyphen becomes \x2d in the names of its unit and its store
mount -t tmpfs leasefs-test /var/lib
mkdir "$MNT" "$TEST_DIR/bin" "$TEST_DIR/etc" "$TEST_DIR/etc/leasefs" "$TEST_DIR/units"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
UNIT=$(systemd-escape --path --template leasefs@.service "$MNT")
CONF=$(systemd-escape --path "$MNT")
CONF=$TEST_DIR/etc/leasefs/${CONF//\\/}.conf # systemd takes a backslash there for one of a pattern
sed -e "s|@bindir@|$TEST_DIR/bin|; s|@sysconfdir@|$TEST_DIR/etc|" "$SOURCES/fs/leasefs@.service.in" >"$TEST_DIR/units/leasefs@.service"
echo OPTIONS=allow_other,ttl=100 >"$CONF"
export XDG_RUNTIME_DIR=$TEST_DIR/run SYSTEMD_UNIT_PATH=$TEST_DIR/units:/usr/lib/systemd/user
mkdir -m 700 "$XDG_RUNTIME_DIR"

# A sanitizer cannot look for leaks within the bounds of the unit.
start env SYSTEMD_LOG_TARGET=console ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" /lib/systemd/systemd --user --unit=basic.target
property() { systemctl --user show -P "$1" "$UNIT"; }
manages() { systemctl --user list-units >/dev/null 2>&1; }
eventually 20 manages || skip_all "no service manager can run here"

it "systemctl reload makes another process the main one, and no lock is lost"
expect systemctl --user start "$UNIT"
old=$(property MainPID)
expect_is "$(property ActiveState)" active
expect touch "$MNT/kept"
token=$(attribute kept token)
# shellcheck disable=SC2016
begin "$MNT/run" sh -c 'echo $$ >"$0"; exec sleep 300' "$TEST_DIR/run.pid"
expect eventually 5 mark run.pid
for i in 1 2 3; do
    expect systemctl --user reload "$UNIT"
    new=$(property MainPID)
    expect [ "$new" != "$old" ]
    expect_is "$(sed -n 's/^pid: //p' "$MNT/.leasefs/status")" "$new"
    expect gone "$old"
    expect_is "$(property ActiveState) $(property SubState) $(property NRestarts)" "active running 0"
    expect_is "$(attribute kept token)" "$token"
    old=$new
done
expect_not gone "$(pid_of run.pid)"

it "options change by it; a wrong one changes nothing"
echo OPTIONS=allow_other,ttl=50 >"$CONF"
expect systemctl --user reload "$UNIT"
expect_is "$(attribute . ttl)" 50
old=$(property MainPID)
echo OPTIONS=allow_other,nonsense >"$CONF"
expect_not systemctl --user reload "$UNIT"
expect_is "$(property ActiveState) $(property SubState) $(property MainPID)" "active running $old"
expect_is "$(attribute kept token)" "$token"

it "the main process that took over is restarted when it is killed, and stopped with the service"
echo OPTIONS=allow_other,ttl=50 >"$CONF"
kill -9 "$old"
restarted() { [ "$(property MainPID)" != "$old" ] && [ "$(property ActiveState)" = active ]; }
expect eventually 20 restarted
expect_is "$(attribute kept token)" "$token"
expect_not gone "$(pid_of run.pid)"
kill "$(pid_of run.pid)"
ended 143
expect systemctl --user stop "$UNIT"
expect_is "$(property ActiveState)" inactive
expect_not grep -q " $MNT " /proc/self/mountinfo
finish
