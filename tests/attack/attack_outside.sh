#!/bin/bash
# A user without rights on a directory of mode 0700 learns nothing of its content and changes nothing there, by any
# request: also about free names and names that the kernel has cached for others, and by watching the directory. (The
# last needs the kernel's own permission check: it lets a user watch a cached directory without a request.)
# shellcheck source=attack.sh
. "$(dirname "$0")/attack.sh"
command -v inotifywait >/dev/null || skip_all "no inotifywait (package inotify-tools)"

# All that names something in the directory, or opens it; $1 is what the answer must be.
outside() { # DIRECTORY NAME: a name that may be there
    local name=$1/$2
    says M "os.stat(path('$name'))" EACCES
    says M "os.lstat(path('$name'))" EACCES
    says M "os.access(path('$name'), os.F_OK)" False
    says M "os.statvfs(path('$name'))" EACCES
    says M "os.readlink(path('$name'))" EACCES
    says M "op('$name', 'RDONLY')" EACCES
    says M "op('$name', 'PATH')" EACCES
    says M "op('$name', 'RDWR')" EACCES
    says M "op('$name', 'RDONLY|CREAT')" EACCES
    says M "acquire('$name')" EACCES
    says M "os.mkdir(path('$name'))" EACCES
    says M "os.rmdir(path('$name'))" EACCES
    says M "os.mknod(path('$name'), 0o600)" EACCES
    says M "ln('x', '$name')" EACCES
    says M "rm('$name')" EACCES
    says M "hardlink('own', '$name')" EACCES
    says M "hardlink('$name', 'linked')" EACCES
    says M "mv('own', '$name')" EACCES
    says M "mv('$name', 'taken')" EACCES
    says M "os.chmod(path('$name'), 0o777)" EACCES
    says M "os.chown(path('$name'), -1, os.getgid())" EACCES
    says M "utime('$name')" EACCES
    says M "utime('$name', 1)" EACCES
    says M "truncate('$name', 0)" EACCES
    says M "os.listxattr(path('$name'))" EACCES
    says M "get('$name', 'token')" EACCES
    says M "put('$name', 'ttl', '1s')" EACCES
    says M "put('$name', 'break', 1)" EACCES
    says M "put('$name', 'release', 1)" EACCES
    says M "os.removexattr(path('$name'), 'user.lease.ttl')" EACCES
    says M "os.chdir(path('$name'))" EACCES
    says M "os.listdir(path('$name'))" EACCES
    expect_is "$(as "$MALLORY" inotifywait -t 1 "$MNT/$name" 2>&1)" "*Permission denied*" "inotifywait of $name"
}

# The directory itself can be looked at, and nothing more.
at() { # DIRECTORY
    says M "stat('$1', 'uid')" "$(id -u "$ALICE")"
    says M "os.listdir(path('$1'))" EACCES
    says M "os.chdir(path('$1'))" EACCES
    says M "os.chmod(path('$1'), 0o777)" EPERM
    says M "os.chown(path('$1'), os.getuid(), -1)" EPERM
    says M "utime('$1')" EACCES
    says M "utime('$1', 1)" EPERM
    says M "os.rmdir(path('$1'))" 'E@(PERM|NOTEMPTY)'
    says M "mv('$1', 'moved')" EPERM
    says M "get('$1', 'ttl')" EACCES
    says M "put('$1', 'ttl', '1s')" EACCES
    says M "os.removexattr(path('$1'), 'user.lease.ttl')" EACCES
    says M "p = op('$1', 'PATH|DIRECTORY'); os.stat('lease', dir_fd=p)" EACCES
    says M 'os.fchdir(p)' EACCES
    says M 'os.open(".", os.O_RDONLY, dir_fd=p)' EACCES
    says M 'os.close(p)' ok
    expect_is "$(as "$MALLORY" inotifywait -t 1 "$MNT/$1" 2>&1)" "*Permission denied*" "inotifywait of $1"
}

attacks() { # WHERE
    it "who is outside of a 0700 directory learns and changes nothing of what is in it ($1)"
    says M 'acquire("own")' ok
    says V 'os.umask(0) and None; os.mkdir(path("private")); os.chmod(path("private"), 0o700); os.mkdir(path("private/dir"))' ok
    says V 'acquire("private/lease", "kept"); ln("target", "private/symlink"); None' ok
    says V 'f = op("private/flock", "RDWR|CREAT"); flock(f, "EX")' ok
    says V 'put("private", "ttl", "300s"); t = get("private/lease", "token"); s = os.stat(path("private/lease"))[:7]' ok
    for name in lease flock symlink dir free lease/below dir/below t-; do
        says V "exists('private/$name') and None" '@(ok|False)' # the kernel knows it now
        outside private "$name"
    done
    at private
    says V 'sorted(ls("private").split())' "\\['dir', 'flock', 'lease', 'symlink'\\]"
    says V 'os.stat(path("private/lease"))[:7] == s and get("private/lease", "token") == t' True
    says V 'content("private/lease")' kept
    says V 'os.readlink(path("private/symlink"))' target
    says V 'get("private", "ttl")' 300
    expect absent linked
    expect absent taken
    expect exists own

    it "who watches what it may watch hears nothing of a 0700 directory ($1)"
    as "$MALLORY" inotifywait -m "$MNT" >"$TEST_DIR/heard" 2>"$TEST_DIR/watches" &
    started+=("$!")
    expect eventually 10 grep -q established "$TEST_DIR/watches"
    says V 'acquire("private/secret"); rm("private/secret")' ok
    says V 'acquire("told")' ok
    expect eventually 10 grep -q told "$TEST_DIR/heard"
    expect_not grep -q secret "$TEST_DIR/heard"
    says V 'rm("told")' ok
    end_process "${started[-1]}"

    it "who was inside when its directory lost the x bit is outside ($1)"
    says V 'os.mkdir(path("open")); os.chmod(path("open"), 0o755); acquire("open/lease")' ok
    says M 'os.chdir(path("open")); d = os.open(".", os.O_RDONLY)' ok
    says M 'os.path.exists("lease")' True
    says V 'os.chmod(path("open"), 0o700)' ok
    says M 'os.stat("lease")' EACCES
    says M 'os.open("lease", os.O_RDONLY)' EACCES
    says M 'os.stat("lease", dir_fd=d)' EACCES
    says M 'os.chdir("/"); os.close(d)' ok
    says V 'os.chmod(path("open"), 0o711)' ok
    says M 'exists("open/lease")' True
    says M 'os.listdir(path("open"))' EACCES
    expect_is "$(as "$MALLORY" inotifywait -t 1 "$MNT/open" 2>&1)" "*Permission denied*" "inotifywait of a 0711 directory"

    it "an open file that was handed out serves who is outside, as it does anywhere ($1)"
    says V 'os.write(f, b"given") and None' ok
    expect_is "$(as "$MALLORY" sh -c "cat <&9" 9<"$MNT/private/flock" 2>&1)" given

    it "root without its capabilities is outside, too ($1)"
    expect_is "$(setpriv --bounding-set=-all --inh-caps=-all -- stat "$MNT/private/lease" 2>&1)" "*Permission denied*"
    expect setpriv -- stat "$MNT/private/lease" >/dev/null

    says V 'os.close(f); rm("private/lease"); rm("private/symlink"); os.rmdir(path("private/dir")); os.rmdir(path("private"))' ok
    says V 'rm("open/lease"); os.rmdir(path("open"))' ok
    says M 'rm("own")' ok
}

mount_memory allow_other
victim V
attacker M
attacks "memory"
finish
