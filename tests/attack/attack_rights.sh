#!/bin/bash
# Rights belong to holders: another user joins a lock, has its name open, or had it open before it was taken; and tries
# to break, release, move, change or read another's lock.  On one mount, and from another.
# shellcheck source=attack.sh
. "$(dirname "$0")/attack.sh"
# shellcheck source=../e2e/redis.sh
. "$(dirname "$0")/../e2e/redis.sh"

install -m 755 "$(dirname "$LEASEFS")/leaserun" "$TEST_DIR/leaserun" # others cannot run what is in every checkout
LEASERUN=$TEST_DIR/leaserun
alice=$(id -u "$ALICE") mallory=$(id -u "$MALLORY")

# Both ask for modes that their umask leaves alone, but where a case says so.
owned_by() { # NAME UID MODE, as anybody sees it from either mount
    expect_is "$(stat -c %u:%a "$VICTIMS/$1")" "$2:$3" "$1 at the victim's"
    expect_is "$(stat -c %u:%a "$MNT/$1")" "$2:$3" "$1 at the attacker's"
}

# Attacks on another user's lock by its name; everybody may write to its file.
violate() { # NAME
    says M "rm('$1')" EPERM
    says M "put('$1', 'break', 1)" EPERM
    says M "put('$1', 'release', 1)" ESTALE
    says M "put('$1', 'ttl', '1s')" EPERM
    says M "os.chmod(path('$1'), 0o777)" EPERM
    says M "os.chown(path('$1'), $mallory, -1)" EPERM
    says M "truncate('$1', 0)" EPERM
    says M "utime('$1')" EBUSY
    says M "utime('$1', 1)" EPERM
    says M "mv('$1', 'taken')" EPERM
    says M "mv('own', '$1')" EBUSY
    says M "hardlink('$1', 'linked')" EPERM
    expect absent taken
    expect absent linked
    expect exists own
}

attacks() { # WHERE
    local token pid
    it "the attacker has a lock of its own, and knows its way ($1)"
    says V 'os.umask(0)' '*'
    says M 'os.umask(0)' '*'
    says M 'acquire("own")' ok

    it "a lease of somebody else is not broken, released, moved, changed nor linked ($1)"
    says V 'acquire("lease", "kept"); t = get("lease", "token")' ok
    violate lease
    pause 1.1 # from then on it can be opened
    says M 'w = op("lease", "RDWR|TRUNC"); None' ok
    says M 'write(w, "x")' EBUSY
    says M 'os.ftruncate(w, 0)' EBUSY
    says M 'os.fchmod(w, 0o777)' EPERM
    says M 'os.fchown(w, -1, os.getgid())' EPERM
    says V 'content("lease")' kept
    owned_by lease "$alice" 666
    says V 'put("lease", "check", t); rm("lease")' ok
    says M 'os.close(w)' 'E@(BUSY|STALE)'

    it "who shares a lock does not own it, nor change it, while the first holds it ($1)"
    says V 's = op("shared", "RDWR|CREAT"); flock(s, "SH"); write(s, "kept")' ok
    says M 'j = op("shared", "RDWR|CREAT"); flock(j, "SH|NB")' ok
    owned_by shared "$alice" 666
    says M 'put("shared", "break", 1)' EPERM
    says V 'put("shared", "break", 1)' EPERM
    says M 'os.chmod(path("shared"), 0o777)' EPERM
    says M 'os.fchmod(j, 0o777)' EPERM
    says M 'hardlink("shared", "linked")' EPERM
    owned_by shared "$alice" 666
    says V 'read(s)' kept
    says V 'os.fsync(s)' ok
    says V 'flock(s, "UN")' ok
    expect_is "$(stat -c %u "$MNT/shared")" "$mallory"
    expect_is "$(stat -c %u "$VICTIMS/shared")" "$mallory"
    says V 'put("shared", "break", 1)' 'E@(PERM|ACCES)'
    says M 'os.fsync(j); put("shared", "break", 1)' ok
    says M 'os.fsync(j)' ESTALE
    says M 'os.close(j)' ok
    says V 'os.close(s)' ok

    it "who locks other bytes does not own the file ($1)"
    says V 's = op("bytes", "RDWR|CREAT"); record(s, "SETLK", "WRLCK", 0, 10)' ok
    says M 'j = op("bytes", "RDWR|CREAT"); record(j, "SETLK", "WRLCK", 10, 1)' ok
    owned_by bytes "$alice" 666
    says M 'put("bytes", "break", 1)' EPERM
    says M 'os.fchmod(j, 0o777)' EPERM
    owned_by bytes "$alice" 666
    says M 'record(j, "SETLK", "WRLCK", 0, 1)' 'E@(AGAIN|ACCES)'
    says V 'os.fsync(s)' ok
    says V 'os.fchmod(s, 0o600)' ok
    owned_by bytes "$alice" 600
    says V 'record(s, "SETLK", "UNLCK", 0, 10)' ok
    expect_is "$(stat -c %u "$VICTIMS/bytes")" "$mallory"
    says M 'os.close(j)' ok
    says V 'os.close(s)' ok

    it "the token of who joined is no use to whose file it is ($1)"
    says M 'j = op("joined", "RDWR|CREAT"); flock(j, "SH")' ok
    says V 's = op("joined", "RDWR|CREAT"); flock(s, "SH|NB"); t = get("joined", "token")' ok
    owned_by joined "$mallory" 666
    says M "put('joined', 'release', $(ask V t))" EPERM
    says V 'put("joined", "check", t); os.fsync(s)' ok
    says M 'put("joined", "break", 1)' EPERM
    says V 'flock(s, "UN")' ok
    says M 'os.close(j)' ok
    says V 'os.close(s)' ok

    it "a further ticket of a width is its own, and gives nothing of the first ($1)"
    says V 'os.mkdir(path("queue"), 0o777); put("queue", "width", 2)' ok
    says V 's = op("queue/t-", "RDWR|CREAT"); flock(s, "EX|NB"); n = read(s).strip()' ok
    says M 'j = op("queue/t-", "RDWR|CREAT"); flock(j, "EX|NB")' ok
    says M 'put("queue", "width", 9)' EPERM
    says M "put('queue/$(ask V n)', 'break', 1)" EPERM
    says M "rm('queue/$(ask V n)')" EPERM
    says M 'os.rmdir(path("queue"))' EPERM
    owned_by "queue/$(ask V n)" "$alice" 666
    says V 'os.fsync(s)' ok
    says M 'os.close(j)' ok
    says V 'os.close(s)' ok
    expect eventually 10 answers V 'os.rmdir(path("queue"))' ok

    it "an idle handle sets neither mode nor owner of the next lock, nor releases it ($1)"
    says M 'i = op("idle", "RDONLY|CREAT", 0o4777); None' ok
    says V 'os.umask(0o077); s = op("idle", "RDONLY|CREAT"); flock(s, "EX|NB")' ok
    owned_by idle "$alice" 600
    token=$(attribute idle token)
    says M 'get(i, "token")' EACCES
    says M "put(i, 'release', $token)" EACCES
    says M 'os.fchmod(i, 0o666)' EPERM
    owned_by idle "$alice" 600
    says V 'os.fsync(s)' ok
    says V 'os.close(s)' ok
    says V 'acquire("idle")' ok
    owned_by idle "$alice" 600
    says V 'rm("idle")' ok
    says M 'os.close(i)' ok

    it "the command of a leaserun is not ended by who has its lock's name open ($1)"
    says M 'i = op("run", "RDONLY|CREAT"); None' ok
    start setpriv --reuid="$ALICE" --regid="$ALICE" --init-groups -- sh -c "umask 077; exec '$LEASERUN' '$VICTIMS/run' -- sleep 60"
    pid=$STARTED
    expect eventually 10 exists run
    owned_by run "$alice" 600
    says M "put(i, 'release', $(attribute run token))" EACCES
    expect constantly 300 kill -0 "$pid"
    expect exists run
    kill "$pid"
    expect eventually 10 absent run
    says M 'os.close(i)' ok

    it "modes beyond 0777 are nobody's, also not one's own ($1)"
    says V 'os.umask(0); s = op("suid", "RDWR|CREAT|EXCL", 0o6755); os.fchmod(s, 0o6755); os.close(s)' ok
    owned_by suid "$alice" 755
    says V 'rm("suid")' ok

    it "a handle that is older than the lock does not read it ($1)"
    says M 'o = op("secret", "RDONLY|CREAT"); None' ok
    says V 'os.umask(0o077); s = op("secret", "RDWR|CREAT|EXCL"); write(s, "secret")' ok
    says M 'read(o)' EACCES
    says M 'child("read(o)")' EACCES
    says M 'content("secret")' EACCES
    says M "open('/proc/self/fd/%d' % o).read()" EACCES
    says V 'read(s)' secret
    says V 'os.fchmod(s, 0o604)' ok
    says M 'read(o)' secret
    says V 'os.fchmod(s, 0o600)' ok
    says M 'read(o)' EACCES
    says V 'os.close(s); rm("secret"); os.umask(0) and None' ok
    says M 'os.close(o)' ok

    it "what is mapped of a lock that not everybody may read is shown to nobody ($1)"
    says M 'o = op("mapped", "RDONLY|CREAT"); m = ctypes.CDLL(None).mmap; m.restype = ctypes.c_void_p; None' ok
    says M 'p = m(None, ctypes.c_size_t(6), 1, 2, o, ctypes.c_long(0)); None' ok
    says V 'os.umask(0o077); s = op("mapped", "RDWR|CREAT|EXCL"); write(s, "secret")' ok
    says V 'child("__import__(\"mmap\").mmap(s, 6, flags=2, prot=1)[:].decode()")' ''
    says M 'child("ctypes.string_at(p, 6).decode()")' ''
    says V 'os.fchmod(s, 0o644)' ok
    says V 'child("__import__(\"mmap\").mmap(s, 6, flags=2, prot=1)[:].decode()")' secret
    says M 'os.fstat(o).st_size' 6
    says M 'child("ctypes.string_at(p, 6).decode()")' secret
    says V 'os.close(s); rm("mapped"); os.umask(0) and None' ok
    says M 'os.close(o)' ok

    it "a lock that is a symbolic link leads nobody to a file of its maker's choice ($1)"
    says M "os.symlink('$TEST_DIR/precious', path('daily'))" ok
    echo precious >"$TEST_DIR/precious"
    says V 'op("daily", "WRONLY|CREAT|TRUNC")' ELOOP
    expect_not sh -c 'echo $$ >"$1"' _ "$MNT/daily" 2>/dev/null
    expect_is "$(cat "$TEST_DIR/precious")" precious
    says M 'rm("daily")' ok

    it "a directory is removed, moved and set by its owner only ($1)"
    says V 'os.mkdir(path("dir"), 0o777)' ok
    says M 'os.rmdir(path("dir"))' EPERM
    says M 'mv("dir", "dir2")' EPERM
    says M 'put("dir", "ttl", "1s")' EPERM
    says M 'os.chmod(path("dir"), 0o700)' EPERM
    says V 'os.rmdir(path("dir"))' ok

    it "a directory that was removed does not change the next of its name ($1)"
    says M 'os.mkdir(path("name")); d = os.open(path("name"), os.O_RDONLY); os.rmdir(path("name"))' ok
    says V 'os.mkdir(path("name"), 0o700)' ok
    says M 'os.fchmod(d, 0o777)' ESTALE
    says M 'os.setxattr(d, "user.lease.ttl", b"1s")' 'E@(PERM|ACCES|STALE)'
    says V 'acquire("name/private")' ok
    says M 'os.listdir(d)' '\[\]'
    owned_by name "$alice" 700
    says M 'os.close(d)' ok
    says V 'rm("name/private"); os.rmdir(path("name"))' ok

    it "who shares a lock builds nothing on what the first has written ($1)"
    says M 'j = op("built", "RDWR|CREAT"); None' ok
    pause 1.1 # it is idle from now on
    says V 'os.umask(0o077); s = op("built", "RDWR|CREAT"); flock(s, "SH"); write(s, "secret"); os.umask(0) and None' ok
    says M 'flock(j, "SH|NB"); os.pwrite(j, b"x", 10) and None' ok
    says M 'read(j)' EACCES
    says V 'read(s)' secret
    says V 'flock(s, "UN")' ok
    says M '"secret" in read(j)' False
    says M 'os.close(j)' ok
    says V 'os.close(s)' ok

    it "a lock taken from nobody is its taker's, whoever has opened the name before ($1)"
    says V 's = op("later", "RDONLY|CREAT", 0o644); flock(s, "EX|NB")' ok
    says M 'os.umask(0o027); i = op("later", "RDONLY|CREAT", 0o666); flock(i, "SH|NB")' EAGAIN
    says V 'flock(s, "UN")' ok
    says M 'flock(i, "EX|NB")' ok
    owned_by later "$mallory" 640
    says M 'os.umask(0); os.close(i); rm("own")' ok
    says V 'os.close(s)' ok
}

mount_memory allow_other
VICTIMS=$MNT
victim V
attacker M
attacks "one mount"
end_actor V
end_actor M

redis_start
mount_two allow_other
VICTIMS=$MOUNT_A
on "$MOUNT_A" victim V
MNT=$MOUNT_B
attacker M
attacks "two mounts of one Redis server"
end_actor M
MNT=$MOUNT_A
attacker M
attacks "one of two mounts"

name="with fs.protected_regular a user still waits for the locks of others"
if protect_regular; then
    it "$name"
    says V 'os.umask(0o022) and None; s = op("theirs", "RDONLY|CREAT"); flock(s, "EX|NB")' ok
    as "$MALLORY" flock -n -E 7 "$MNT/theirs" true
    expect_is "$?" 7 "flock -n"
    says V 'os.close(s)' ok
    expect as "$MALLORY" flock -w 5 "$MNT/theirs" true
else
    left_out "$name" "where fs.protected_regular can be set"
fi

finish
