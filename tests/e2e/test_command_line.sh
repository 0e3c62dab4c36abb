#!/bin/bash
# The daemon's command line: starting, failing with one line, ending; mount(8), fstab and umount.
#
# Runs in a mount namespace of its own: mount(8) looks for leasefs in the system's
# directories only, so the binary is shown in /usr/local/sbin there, before any that is installed.
if [ "$(id -u)" -eq 0 ] && [ -z "${E2E_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
    E2E_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ -n "${E2E_NAMESPACE:-}" ] || skip_all "no mount namespaces here"

# The daemon in the background that serves a mount point of ours: by its binary and its argument.
daemon_of() { # MOUNTPOINT
    local proc
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/exe")" = "$LEASEFS" ] && [ "$(cat "$proc/comm")" != leasefs-keeper ] || continue
        tr '\0' '\n' <"$proc/cmdline" 2>/dev/null | grep -qxF "$1" && { echo "${proc#/proc/}"; return; }
    done
    return 1
}

# background BACKEND [OPTIONS]: starts it as a user would; sets MNT and DAEMON.
background() {
    new_mountpoint
    "$LEASEFS" ${2:+-o "$2"} "$1" "$MNT" >"$TEST_DIR/out" 2>&1 </dev/null || return 1
    DAEMON=$(daemon_of "$MNT") || return 1
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" "$TEST_DIR/out"
}

# It has ended and its mount is gone.
expect_ended() { # MOUNTPOINT
    local i
    mount_index "$1"
    i=$INDEX
    expect eventually 10 gone "${mount_daemons[i]}"
    expect_not mounted_as "$1" "${mount_devices[i]}"
    mount_daemons[i]=
}

# refuses WORD ARGUMENT…: says why in one line that has WORD in it, returns non-zero, and mounts nothing.
refuses() {
    local word=$1 status=0 lines
    shift
    timeout 20 "$LEASEFS" "$@" >"$TEST_DIR/refused" 2>&1 </dev/null || status=$?
    lines=$(wc -l <"$TEST_DIR/refused")
    if [ "$status" -eq 0 ] || [ "$status" -ge 124 ] || [ "$lines" -ne 1 ] || ! grep -qiF -e "$word" "$TEST_DIR/refused"; then
        fail "leasefs $*: status $status, $lines lines: $(head -5 "$TEST_DIR/refused")"
    else
        pass
        say "leasefs $*: $(cat "$TEST_DIR/refused")"
    fi
    if [ -d "$MNT" ] && answering "$MNT"; then
        fail "leasefs $* left a mount"
        umount "$MNT"
    fi
}

it "--help and --version answer on stdout and succeed"
expect "$LEASEFS" --help >"$TEST_DIR/help"
expect grep -q 'BACKEND MOUNTPOINT' "$TEST_DIR/help"
expect grep -q 'ttl=' "$TEST_DIR/help"
expect "$LEASEFS" --version >"$TEST_DIR/version"
expect_re "$(head -1 "$TEST_DIR/version")" '^leasefs [0-9]+'
expect_re "$(cat "$TEST_DIR/version")" '\(libfuse 3[^ ]*; TLS: (yes|no); ZooKeeper: (yes|no); PostgreSQL: (yes|no); seccomp: (yes|no)\)$'
built() { "$LEASEFS" --version --json | "$PYTHON" -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }
configured() { grep -q "^#define $1" "$(dirname "$LEASEFS")/config.h" && echo True || echo False; }
if [ -e "$(dirname "$LEASEFS")/config.h" ]; then
    expect_is "$(built zookeeper)" "$(configured HAVE_ZOOKEEPER)"
    expect_is "$(built postgresql)" "$(configured HAVE_POSTGRESQL)"
    expect_is "$(built seccomp)" "$(configured HAVE_LIBSECCOMP)"
fi
expect_is "$("$LEASEFS" --version --json | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["version"])')" \
    "$(awk '{ print $2; exit }' "$TEST_DIR/version")"

new_mountpoint
it "wrong use is one line: no arguments, no mount point, too many"
refuses "" # anything
refuses "" memory
refuses "json is for --version" --json memory "$MNT"
refuses "too many" memory "$MNT" extra
refuses "-x" -x memory "$MNT"

it "an argument that is missing, or is one too many, is one line that names the option"
refuses "--protect needs a directory" --protect
refuses "--print-schema needs a store" --print-schema
refuses "one argument too many: usage is leasefs --protect" --protect "$MNT" "$MNT"
refuses "one argument too many" --print-schema=postgresql "$MNT"

it "--help says for which stores an option is"
expect grep -q '^  grace=.*; Redis and PostgreSQL only$' "$TEST_DIR/help"
expect grep -q '^  wait=.*; Redis only$' "$TEST_DIR/help"

it "a wrong option is one line that names it"
refuses "nosuchoption" -o nosuchoption memory "$MNT"
refuses "ttl" -o ttl=soon memory "$MNT"
refuses "ttl" -o ttl=50ms memory "$MNT"
refuses "ttl" -o ttl=11y memory "$MNT"
refuses "ttl" -o ttl= memory "$MNT"
refuses "owner" -o owner=me memory "$MNT"
refuses "sync" -o sync=perhaps memory "$MNT"
refuses "mode" -o mode=rwx memory "$MNT"
refuses "uid" -o uid=-1x memory "$MNT"
refuses "gid" -o gid=nosuchgroup memory "$MNT"
refuses "nosuchoption" -f -o ttl=5,nosuchoption memory "$MNT"

it "an unknown backend is one line that names it"
refuses "nosuch" nosuch "$MNT"
refuses "locale" locale:/tmp "$MNT"
refuses "memory:x" memory:x "$MNT"

it "a wrong redis URI is one line that says what to write, and never repeats a password"
refuses "redis://HOST" redis:host "$MNT"
refuses "1 to 65535" redis://127.0.0.1:0 "$MNT"
refuses "1 to 65535" -f redis://127.0.0.1:port "$MNT"
refuses "/NUMBER" redis://127.0.0.1/zero "$MNT"
refuses "redis+unix" redis-socket:///run/redis "$MNT"
refuses "credentials=FILE" redis://:hidden-word@127.0.0.1 "$MNT"
expect_not grep -q hidden-word "$TEST_DIR/refused"

it "what is wrong with an address of another kind is one line with the cure"
refuses "IPv6 is written in brackets" redis://::1 "$MNT"
refuses "has a user or a password" zookeeper://me@127.0.0.1:1 "$MNT"
refuses "host or port that is none" zookeeper://127.0.0.1:0 "$MNT"
refuses "not with pg_" "postgresql://127.0.0.1:1/db?schema=pg_catalog" "$MNT"
: >"$TEST_DIR/plain"
refuses "is no directory, or is below a file" "local:$TEST_DIR/plain" "$MNT"

it "a wrong credentials file is one line that says what to do, and never repeats what is in it"
echo hidden-word >"$TEST_DIR/credentials"
chmod 644 "$TEST_DIR/credentials"
refuses "chmod 600" -o "credentials=$TEST_DIR/credentials" redis://127.0.0.1:1 "$MNT"
expect_not grep -q hidden-word "$TEST_DIR/refused"
refuses "$TEST_DIR/none" -o "credentials=$TEST_DIR/none" redis://127.0.0.1:1 "$MNT"

it "a Redis server that cannot be reached is one line that says so, and is not waited for long"
refuses "cannot connect" redis://127.0.0.1:1 "$MNT"
refuses "cannot connect" -f "redis+unix://$TEST_DIR/no-socket" "$MNT"
refuses "cannot be found" redis://nowhere.invalid "$MNT"

it "an option of another kind of backend is one line that says whose it is"
refuses "only for redis://" -o prefix=a: memory "$MNT"
refuses "only for redis://" -o background "local:$TEST_DIR/never-made" "$MNT"
refuses "only for memory and local" -o sync=always redis://127.0.0.1:1 "$MNT"

it "a mount point that is missing, or no directory, is one line that names it"
refuses "$TEST_DIR/missing" memory "$TEST_DIR/missing"
refuses "$TEST_DIR/missing" -f memory "$TEST_DIR/missing"
: >"$TEST_DIR/file"
refuses "$TEST_DIR/file" memory "$TEST_DIR/file"

it "a store directory that cannot be made is one line that names it"
refuses "$TEST_DIR/file/below" "local:$TEST_DIR/file/below" "$MNT"

it "a mount that would hide its own store is one line that names both, and does not wait for itself"
refuses "would hide $MNT/store" "local:$MNT/store" "$MNT"
ln -s "$MNT" "$TEST_DIR/link"
refuses "would hide $TEST_DIR/link/store" -f "local:$TEST_DIR/link/store" "$MNT"
refuses "would hide" memory /sys
refuses "would hide" -o "background,state=$MNT" zookeeper://127.0.0.1:1/locks "$MNT"
rm -r "${MNT:?}"/*

it "a store in a directory that is missing is one line that names that and the command that makes it; nothing is made"
refuses "mkdir -p $TEST_DIR/tpyo" "local:$TEST_DIR/tpyo/store" "$MNT"
refuses "$TEST_DIR/tpyo/deep does not exist" -f "local:$TEST_DIR/tpyo/deep/store" "$MNT"
expect_not test -e "$TEST_DIR/tpyo"
expect mkdir -p "$TEST_DIR/tpyo"
mount_local "$TEST_DIR/tpyo/store"
expect touch "$MNT/works"
unmount "$MNT"
new_mountpoint

it "a store already in use is one line that says so, in the foreground and the background"
mkdir -m 700 "$TEST_DIR/store"
mount_local "$TEST_DIR/store"
busy=$MNT
new_mountpoint
MNT=$TEST_DIR/second
mkdir "$MNT"
refuses "$TEST_DIR/store" "local:$TEST_DIR/store" "$MNT"
refuses "$TEST_DIR/store" -f "local:$TEST_DIR/store" "$MNT"
expect touch "$busy/still-works"
unmount "$busy"

it "the store directory is made when it is missing, and is 0700"
mount_local "$TEST_DIR/made"
expect_is "$(stat -c %a "$TEST_DIR/made")" 700
unmount "$MNT"

it "in the background it returns 0 only once the mount is usable"
for i in {1..10}; do
    if background memory && : >"$MNT/now$i" && [ -e "$MNT/now$i" ]; then pass; else fail "start $i: $(cat "$TEST_DIR/out")"; fi
    expect_is "$(cat "$TEST_DIR/out")" "" "what it said"
    expect umount "$MNT"
    expect_ended "$MNT"
done

it "in the background it lets go of the terminal: session, working directory, descriptors"
expect background "local:$TEST_DIR/background" ttl=5
session=$(sed 's/.*) //' "/proc/$DAEMON/stat" | cut -d' ' -f4)
expect_is "$session" "$DAEMON" session
expect_is "$(readlink "/proc/$DAEMON/cwd")" /
for fd in 0 1 2; do expect_is "$(readlink "/proc/$DAEMON/fd/$fd")" /dev/null "descriptor $fd"; done
out=$(timeout 20 bash -c '"$0" memory "$1"' "$LEASEFS" "$(mkdir "$TEST_DIR/captured" && echo "$TEST_DIR/captured")" 2>&1)
expect_is "$?:$out" "0:" "status and output of a captured start"
DAEMON=$(daemon_of "$TEST_DIR/captured")
remember "$TEST_DIR/captured" "$DAEMON" /dev/null
started+=("$DAEMON")

it "the exit of the caller's terminal or shell leaves it alone"
expect setsid -w bash -c 'mkdir "$1" && "$0" memory "$1"' "$LEASEFS" "$TEST_DIR/hup"
DAEMON=$(daemon_of "$TEST_DIR/hup")
remember "$TEST_DIR/hup" "$DAEMON" /dev/null
started+=("$DAEMON")
expect touch "$TEST_DIR/hup/l"

it "SIGTERM ends it cleanly: unmounted, gone"
kill -TERM "$DAEMON"
expect_ended "$TEST_DIR/hup"

it "umount ends it cleanly"
expect umount "$TEST_DIR/captured"
expect_ended "$TEST_DIR/captured"

it "fusermount3 -u ends it cleanly"
expect background memory
expect fusermount3 -u "$MNT"
expect_ended "$MNT"

for signal in TERM INT; do
    it "SIG$signal in the foreground ends it cleanly: status 0, unmounted"
    mount_memory
    point=$MNT
    expect touch "$point/held"
    kill -"$signal" "$DAEMON"
    expect eventually 10 gone "$DAEMON"
    status=0
    wait "$DAEMON" || status=$?
    expect_is "$status" 0 "exit status"
    expect_ended "$point"
done

it "SIGTERM with open handles, a directory listing and a working directory inside ends it too"
mount_memory
point=$MNT
actor A
says A 'f = op("open", "RDWR|CREAT|EXCL"); g = op("prov"); os.mkdir(path("d")); os.chdir(path("d"))' ok
says A 'r = os.scandir(path("d"))' ok
kill -TERM "$DAEMON"
expect eventually 10 gone "$DAEMON"
status=0
wait "$DAEMON" || status=$?
expect_is "$status" 0 "exit status"
expect_ended "$point"
says A 'write(f, "x")' 'E*'
end_actor A

it "SIGTERM while a caller waits for a provisional outcome ends it, and the caller gets an error"
mount_memory
point=$MNT
actor A
actor B
says A 'f = op("prov")' ok
tell B 'op("prov")'
pause 0.1
kill -TERM "$DAEMON"
expect eventually 10 gone "$DAEMON"
expect_is "$(hear B 5)" '@(E*|[0-9]*)'
expect_ended "$point"
end_actor A
end_actor B

it "mount -t fuse.leasefs BACKEND MOUNTPOINT -o OPTIONS"
mkdir "$TEST_DIR/bin"
ln -s "$LEASEFS" "$TEST_DIR/bin/leasefs"
mount --bind "$TEST_DIR/bin" /usr/local/sbin # where mount.fuse3 looks first
new_mountpoint
if mount -t fuse.leasefs memory "$MNT" -o ttl=7,allow_other,noatime,nosuid,nodev >"$TEST_DIR/out" 2>&1; then
    pass
    DAEMON=$(daemon_of "$MNT")
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" "$TEST_DIR/out"
    expect touch "$MNT/l"
    expect_is "$(milliseconds "$(attribute l ttl)")" 7000
    expect_is "$(findmnt -n -o FSTYPE "$MNT")" fuse.leasefs
    expect_is "$(findmnt -n -o OPTIONS "$MNT")" "*nosuid*"
    expect_is "$(findmnt -n -o OPTIONS "$MNT")" "*allow_other*"
    expect umount "$MNT"
    expect_ended "$MNT"
else
    fail "mount: $(cat "$TEST_DIR/out")"
fi

it "a line of fstab reaches it unchanged"
new_mountpoint
printf 'local:%s %s fuse.leasefs ttl=8s,noauto,_netdev 0 0\n' "$TEST_DIR/fstab-store" "$MNT" >"$TEST_DIR/fstab"
if mount --fstab "$TEST_DIR/fstab" "$MNT" >"$TEST_DIR/out" 2>&1; then
    pass
    DAEMON=$(daemon_of "$MNT")
    started+=("$DAEMON")
    remember "$MNT" "$DAEMON" "$TEST_DIR/out"
    expect touch "$MNT/l"
    expect_is "$(milliseconds "$(attribute l ttl)")" 8000
    expect_is "$(findmnt -n -o SOURCE "$MNT")" "local:$TEST_DIR/fstab-store"
    expect umount "$MNT"
    expect_ended "$MNT"
else
    fail "mount: $(cat "$TEST_DIR/out")"
fi

it "mount fails when the daemon does"
new_mountpoint
status=0
mount -t fuse.leasefs nosuch "$MNT" >"$TEST_DIR/out" 2>&1 || status=$?
expect [ "$status" -ne 0 ]
expect grep -q nosuch "$TEST_DIR/out"

it "options may stand after the mount point, several -o add up"
MNT=$TEST_DIR/after
mkdir "$MNT"
expect "$LEASEFS" memory "$MNT" -o ttl=6s -o mode=0711
DAEMON=$(daemon_of "$MNT")
started+=("$DAEMON")
remember "$MNT" "$DAEMON" /dev/null
expect touch "$MNT/l"
expect_is "$(milliseconds "$(attribute l ttl)")" 6000
expect_is "$(stat -c %a "$MNT")" 711
expect umount "$MNT"
expect_ended "$MNT"

it "a mount point given as a relative path works"
mkdir "$TEST_DIR/relative"
expect bash -c 'cd "$1" && "$0" memory relative' "$LEASEFS" "$TEST_DIR"
MNT=$TEST_DIR/relative
DAEMON=$(daemon_of relative)
started+=("$DAEMON")
remember "$MNT" "$DAEMON" /dev/null
expect touch "$MNT/l"
expect umount "$MNT"
expect_ended "$MNT"

finish
