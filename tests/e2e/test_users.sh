#!/bin/bash
# Other users: two uids, directories of mode 0755 and 1777, allow_other, with the kernel's checks and with our own.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v setpriv >/dev/null || skip_all "no setpriv"

one=(setpriv --reuid=65534 --regid=65534 --clear-groups)
two=(setpriv --reuid=12345 --regid=12345 --clear-groups)
grouped=(setpriv --reuid=12346 --regid=12346 --groups=65534)

# Every case is run twice: `checks` tells who looks at the permissions.
permissions() {
    local checks=$1 pid
    actor R
    actor U "${one[@]}"
    actor V "${two[@]}"
    actor G "${grouped[@]}"

    it "the top directory is 0777 for root with allow_other, without a sticky bit ($checks)"
    expect_is "$(stat -c %a:%u "$MNT")" 777:0
    says U 'acquire("top")' ok
    says V 'acquire("top2")' ok
    says U 'rm("top")' ok

    it "a file belongs to who acquired it: uid, gid, owner attribute ($checks)"
    says V 'content("top2")' ''
    expect_is "$(stat -c %u:%g "$MNT/top2")" 12345:12345
    expect_is "$(attribute top2 owner)" "* ${actor_pid[V]} 12345 *"
    says V 'rm("top2")' ok

    it "in a 0755 directory of another nothing can be made: EACCES ($checks)"
    says R 'os.umask(0o022) and None; os.mkdir(path("d755"))' ok
    expect_is "$(stat -c %a "$MNT/d755")" 755
    says U 'acquire("d755/l")' EACCES
    says U 'op("d755/l")' EACCES
    says U 'op("d755/l", "RDONLY|CREAT")' EACCES
    says U 'ln("t", "d755/l")' EACCES
    says U 'os.mkdir(path("d755/d"))' EACCES
    expect_is "$(ls "$MNT/d755")" ""
    says R 'acquire("d755/roots")' ok
    says U 'content("d755/roots")' ''
    says U 'rm("d755/roots")' 'E@(ACCES|PERM)'
    says R 'rm("d755/roots")' ok

    it "in one's own 0755 directory one can ($checks)"
    says U 'os.umask(0o022) and None; os.mkdir(path("own"))' ok
    says U 'acquire("own/l")' ok
    says V 'acquire("own/l")' 'E@(EXIST|ACCES)'
    says V 'acquire("own/m")' EACCES
    says V 'ls("own")' l
    says U 'rm("own/l")' ok
    says V 'os.rmdir(path("own"))' EPERM
    expect [ -d "$MNT/own" ]
    says U 'os.rmdir(path("own"))' ok

    it "in a 1777 directory both can, and exclude each other ($checks)"
    says R 'os.mkdir(path("tmp")); os.chmod(path("tmp"), 0o1777)' ok
    expect_is "$(stat -c %a "$MNT/tmp")" 1777
    says U 'acquire("tmp/l")' ok
    says V 'acquire("tmp/l")' EEXIST
    says V 'rm("tmp/l")' 'E@(PERM|ACCES)'
    says R 'rm("tmp/l")' EPERM
    says U 'rm("tmp/l")' ok
    says V 'acquire("tmp/l")' ok
    says V 'rm("tmp/l")' ok

    it "what root's process runs as another user may not release the lock of that process ($checks)"
    says R 'acquire("tmp/roots")' ok
    says R 'child("os.setuid(12345) or rm(\"tmp/roots\")")' EPERM
    says R 'child("rm(\"tmp/roots\")")' ok

    it "a directory is removed by its owner and root only, sticky bit of the one it is in or not ($checks)"
    says U 'os.mkdir(path("tmp/d")); os.mkdir(path("d")); os.mkdir(path("e"))' ok
    says V 'os.rmdir(path("tmp/d"))' EPERM
    says V 'os.rmdir(path("d"))' EPERM
    says V 'mv("d", "f")' EPERM
    says U 'os.rmdir(path("tmp/d")); os.rmdir(path("d"))' ok
    says R 'os.rmdir(path("e"))' ok

    it "when the owner is dead, another uid still may not remove its lock ($checks)"
    actor D "${one[@]}"
    says D 'acquire("tmp/dead")' ok
    pause 1.2
    end_actor D
    says V 'rm("tmp/dead")' 'E@(PERM|ACCES)'
    expect exists tmp/dead
    says U 'rm("tmp/dead")' ok

    it "a 0700 directory of another cannot be entered nor listed: EACCES ($checks)"
    says U 'os.mkdir(path("private"), 0o700)' ok
    says U 'acquire("private/l", "x")' ok
    says V 'ls("private")' EACCES
    says V 'content("private/l")' EACCES
    says V 'acquire("private/l")' EACCES
    says V 'stat("private/l", "ino")' EACCES
    says V 'get("private/l", "token")' EACCES
    says U 'rm("private/l"); os.rmdir(path("private"))' ok

    it "a file of mode 0600 is read by its owner and root only: EACCES ($checks)"
    says U 'os.umask(0o077) and None; acquire("tmp/secret", "s")' ok
    expect_is "$(stat -c %a "$MNT/tmp/secret")" 600
    says V 'content("tmp/secret")' EACCES
    says V 'op("tmp/secret", "WRONLY")' 'E@(ACCES|BUSY)'
    says R 'content("tmp/secret")' s
    says U 'rm("tmp/secret")' ok

    it "group permissions count, supplementary groups included ($checks)"
    says U 'os.umask(0o027) and None; acquire("tmp/group", "g")' ok
    expect_is "$(stat -c %a "$MNT/tmp/group")" 640
    says G 'content("tmp/group")' g
    says V 'content("tmp/group")' EACCES
    says U 'rm("tmp/group"); os.umask(0o022) and None' ok
    says R 'os.mkdir(path("team")); os.chown(path("team"), 0, 65534); os.chmod(path("team"), 0o770)' ok
    says G 'acquire("team/l")' ok
    says V 'acquire("team/m")' EACCES
    says G 'rm("team/l")' ok

    it "a handle that is older than the lock reads it if its opener may, supplementary groups included ($checks)"
    says G 'f = op("tmp/older", "RDONLY|CREAT"); None' ok
    says V 'f = op("tmp/older", "RDONLY|CREAT"); None' ok
    says U 'os.umask(0o027) and None; acquire("tmp/older", "g")' ok
    says G 'read(f)' g
    says V 'read(f)' EACCES
    says U 'os.chmod(path("tmp/older"), 0o604)' ok
    says G 'read(f)' EACCES
    says V 'read(f)' g
    says U 'rm("tmp/older"); os.umask(0o022) and None' ok
    says G 'os.close(f)' ok
    says V 'os.close(f)' ok

    it "break is for root and the file's owner uid ($checks)"
    says U 'acquire("tmp/b"); os.chmod(path("tmp/b"), 0o666)' ok
    says V 'put("tmp/b", "break", "1")' 'E@(PERM|ACCES)'
    expect exists tmp/b
    actor D "${one[@]}"
    says D 'put("tmp/b", "break", "1")' ok
    end_actor D
    expect absent tmp/b
    says U 'acquire("tmp/b")' ok
    says R 'put("tmp/b", "break", "1")' ok
    expect absent tmp/b

    it "attributes of another's directory: EPERM or EACCES ($checks)"
    says V 'put("tmp", "ttl", "1s")' 'E@(PERM|ACCES)'
    says V 'os.chmod(path("tmp"), 0o777)' EPERM
    says V 'os.chown(path("tmp"), 12345, -1)' EPERM
    says R 'put("tmp", "ttl", "9s")' ok
    says V 'get("tmp", "ttl") in ("9", "9s", "9.000")' True

    it "access(2) answers by the same permissions ($checks)"
    says U 'os.access(path("d755"), os.W_OK)' False
    says U 'os.access(path("d755"), os.R_OK | os.X_OK)' True
    says U 'os.access(path("tmp"), os.W_OK)' True

    for pid in R U V G; do end_actor "$pid"; done
}

mount_memory allow_other
permissions "our checks"
unmount "$MNT"
mount_memory allow_other,default_permissions
permissions "the kernel's checks"

it "without allow_other another user sees nothing: EACCES"
mount_memory
actor U "${one[@]}"
says U 'ls()' EACCES
says U 'acquire("x")' EACCES
expect_is "$(stat -c %a "$MNT")" 755

it "lockmode= is the mode of every new lock, whatever the umask, so that another user's exec 9>L works while flock L waits"
protect_regular || say "fs.protected_regular cannot be set here: it is ${regular:-missing}"
holding='umask 022; exec 9>"$1/flock"; flock 9; touch "$1/touched"; set -C; : >"$1/noclobber"; ln -s x "$1/link"; mkdir "$1/dir"
    : <>"$1/q-"; exec flock -F "$1/by-name" sleep 60'
for mode in '' 666; do
    mount_memory "allow_other${mode:+,lockmode=0$mode}"
    start "${one[@]}" bash -c "$holding" - "$MNT"
    expect eventually 5 eval '[ "$(attribute by-name state)" = held ]'
    for name in flock touched noclobber by-name q-0000000000; do
        expect_is "$(stat -c %a "$MNT/$name")" "${mode:-644}" "mode of $name, lockmode=$mode"
    done
    expect_is "$(stat -c %a "$MNT/link" "$MNT/dir" | paste -sd ' ')" "777 755"
    for who in two root; do
        prefix=("${two[@]}")
        [ "$who" = two ] || prefix=(env)
        for name in flock by-name; do
            wanted=7
            [ "$who$mode" != two ] || wanted=13
            "${prefix[@]}" bash -c 'umask 022; { exec 9>"$1"; } 2>/dev/null || exit 13; flock -n -E 7 9' - "$MNT/$name"
            expect_is "$?" "$wanted" "$who, exec 9>$name, lockmode=$mode"
            "${prefix[@]}" flock -n -E 7 "$MNT/$name" true
            expect_is "$?" 7 "$who, flock $name, lockmode=$mode"
        done
    done
    end_process "$STARTED"
    expect eventually 5 absent by-name
    unmount "$MNT"
done
[ -z "$regular" ] || set_regular "$regular"
trap on_exit EXIT

it "mode=, uid= and gid= are those of the top directory"
mount_memory mode=0750,uid=12345,gid=65534,allow_other
expect_is "$(stat -c %a:%u:%g "$MNT")" 750:12345:65534
actor V "${two[@]}"
actor U "${one[@]}"
actor W setpriv --reuid=12347 --regid=12347 --clear-groups
says V 'acquire("x")' ok
says U 'ls()' x
says U 'acquire("y")' EACCES
says W 'ls()' EACCES

finish
