#!/bin/sh
# share/apparmor/leasefs, the AppArmor profile: it names each path that is fixed in the source, and apparmor_parser, where it
# is installed, takes it with the abstractions of this system.  make check-apparmor shows what the profile allows.
set -eu
cd "${top_srcdir:-$(dirname "$0")/..}"

# shellcheck source=checks.sh
. tests/checks.sh
profile=share/apparmor/leasefs

# Prints the value of a constant of the source.
value() { sed -n "s/^#define $2 \"\([^\"]*\)\".*/\1/p" "$1"; } # FILE NAME

expect_none "$(
    while read -r file name; do
        path=$(value "$file" "$name" | sed 's|^/sys/|@{sys}/|; s|^/run/|@{run}/|')
        case $name in
        MOUNTING_PROGRAM) path="bin/$path" ;;
        SYSTEM_STATE) path="$path/leasefs/" ;;
        esac
        if [ -z "$path" ]; then echo "$file has no $name"; else grep -qF "$path" $profile || echo "$name: $path"; fi
    done <<PATHS
fs/daemon/mounting.c MOUNTING_CONFIGURATION
fs/daemon/mounting.c MOUNTING_DEVICE
fs/daemon/mounting.c MOUNTING_PROGRAM
fs/daemon/mountpoint.c SWITCH_LOCK
fs/daemon/mountpoint.h MOUNTPOINT_STAGES
fs/options/options.c SYSTEM_STATE
fs/process/connection.h CONNECTION_ALL
PATHS
)" "the AppArmor profile names the paths of the source"

PATH=$PATH:/usr/sbin:/sbin
if command -v apparmor_parser >/dev/null; then
    expect_none "$(apparmor_parser --skip-kernel-load --skip-cache --base /etc/apparmor.d $profile 2>&1 >/dev/null | grep -v '^Cache read/write disabled')" \
        "apparmor_parser takes the profile"
else
    echo "# left out: apparmor_parser takes the profile: would run with the package apparmor"
fi
end_checks
