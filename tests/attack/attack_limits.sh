#!/bin/bash
# Limits: a user who takes as much as possible does not keep other users and root from locking.
# shellcheck source=attack.sh
. "$(dirname "$0")/attack.sh"

STORE=$TEST_DIR/store
mkdir -m 700 "$STORE"
mount_local "$STORE" allow_other,ttl=60,user_locks=300,user_content=200K
point=$MNT
attacker M
victim A
mallory=$(id -u "$MALLORY") alice=$(id -u "$ALICE")

# What the status tells of a user: "LOCKS CONTENT".
used() {
    sed -n "s/^user: uid $1, locks \([0-9]*\), content \([0-9]*\)$/\1 \2/p" "$MNT/.leasefs/status" | grep . || echo "0 0"
}

# Both still get every kind of lock, and give it back.
others_lock() {
    local name=others-$SRANDOM
    says A "acquire('$name', 'text'); rm('$name')" ok
    says A "os.mkdir(path('$name')); os.rmdir(path('$name'))" ok
    says A "f = op('$name', 'RDWR|CREAT'); flock(f, 'EX|NB'); close(f)" ok
    expect eventually 3 absent "$name"
    expect touch "$MNT/$name"
    expect rm "$MNT/$name"
    expect grep -q ^state: "$MNT/.leasefs/status"
    says A 'len(open(path(".leasefs/metrics")).read()) > 100' True
}

it "content: beyond user_content a write, a symbolic link and a hard link are EDQUOT"
says M 'os.mkdir(path("m"))' ok
says M '[acquire("m/c%d" % i, "x" * 60000) for i in range(10)]' EDQUOT
expect_is "$(used "$mallory")" "5 180000"
says M 'ln("x" * 4000, "m/l1"); ln("x" * 4000, "m/l2"); ln("x" * 4000, "m/l3"); ln("x" * 4000, "m/l4"); ln("x" * 4000, "m/l5")' ok
says M '[ln("x" * 4000, "m/s%d" % i) for i in range(10)]' EDQUOT
says M 'os.link(path("m/c0"), path("m/hard"))' EDQUOT
says M 'fd = op("m/c0", "WRONLY"); os.pwrite(fd, b"x" * 5000, 60000)' EDQUOT
says M 'os.pwrite(fd, b"y" * 60000, 0)' 60000
says M 'os.ftruncate(fd, 100); close(fd)' ok
says M 'os.truncate(path("m/c1"), 65000)' ok
others_lock

it "what was refused left nothing, and what is released may be had again"
says M '[rm("m/" + n) for n in os.listdir(path("m"))][0]' '@(None|ok)'
expect_is "$(used "$mallory")" "1 0"
says M 'os.rmdir(path("m"))' ok
expect_is "$(used "$mallory")" "0 0"

it "names: beyond user_locks every call that takes one is EDQUOT"
says M '[acquire("n%d" % i) for i in range(400)]' EDQUOT
expect_is "$(used "$mallory")" "300 0"
says M 'acquire("more")' EDQUOT
says M 'ln("x", "more")' EDQUOT
says M 'os.mkdir(path("more"))' EDQUOT
says M 'op("more", "WRONLY|CREAT")' EDQUOT
says M 'fd = op("more", "RDONLY|CREAT"); flock(fd, "EX|NB")' EDQUOT
says M 'fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)' EDQUOT
says M 'close(fd)' ok
says M 'os.rename(path("n0"), path("renamed"))' ok
expect absent more
expect_is "$(used "$mallory")" "300 0"
others_lock
expect_is "$(used "$alice")" "0 0"

it "the counts are right after kill -9 and a start on the same directory"
crash "$point"
mount_at "$point" "local:$STORE" allow_other,ttl=60,user_locks=300,user_content=200K
expect_is "$(used "$mallory")" "300 0"
says M 'acquire("more")' EDQUOT
says M '[rm("n%d" % i) for i in range(1, 300)][0]' '@(None|ok)'
expect_is "$(used "$mallory")" "1 0"
says M 'rm("renamed")' ok

it "places in a queue, handle locks, waiters and directories count; what ends by itself is counted no more"
says M 'os.mkdir(path("q"))' ok
says M 't = [op("q/job-", "RDWR|CREAT") for i in range(400)]' EDQUOT
expect_is "$(used "$mallory" | cut -d' ' -f1)" 300
says M 'op("q/job-", "RDWR|CREAT")' EDQUOT
others_lock
end_actor M
freed() { expect_is_quiet "$(used "$mallory")" "$1"; }
expect_is_quiet() { [ "$1" = "$2" ]; }
expect eventually 5 freed "1 0"
attacker M
says M 'os.rmdir(path("q"))' ok
says M 'for i in range(400): os.mkdir(path("d%d" % i))' EDQUOT
expect_is "$(used "$mallory")" "300 0"
others_lock
crash "$point"
mount_at "$point" "local:$STORE" allow_other,ttl=60,user_locks=300,user_content=200K
expect_is "$(used "$mallory")" "300 0"
says M 'for i in range(300): os.rmdir(path("d%d" % i))' ok
expect_is "$(used "$mallory")" "0 0"
says M '[acquire("short%d" % i, "text") for i in range(20)][0]' '@(None|ok)'
says M '[put("short%d" % i, "ttl", "100ms") for i in range(20)][0]' '@(None|ok)'
expect eventually 5 freed "0 0"

it "byte ranges of one name: EDQUOT beyond what a lock owner may have, also by unlocking the middle of one"
says M 'fd = op("ranges", "RDWR|CREAT")' ok
says M '[fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 2 * i) for i in range(10000)]' EDQUOT
says A 'f = op("ranges", "RDONLY"); fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0); close(f)' ok
says M 'fcntl.lockf(fd, fcntl.LOCK_UN)' ok
says M 'fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(fd, fcntl.LOCK_UN); close(fd)' ok
others_lock

it "names that stay refused behind their lock, by a lock-delay or a guard, count"
says M 'os.mkdir(path("late")); os.chmod(path("late"), 0o777); put("late", "delay", "1h")' ok
says M 'for i in range(400): acquire("late/n%d" % i); put("late/n%d" % i, "break", 1)' EDQUOT
says M 'acquire("other")' EDQUOT
says A 'acquire("late/n9")' EEXIST
others_lock
crash "$point"
mount_at "$point" "local:$STORE" allow_other,ttl=60,user_locks=300,user_content=200K
says M 'def guarded(name): acquire(name); put(name, "guard", "20s"); put(name, "release", get(name, "token"))' ok
says M 'os.mkdir(path("guards")); os.chmod(path("guards"), 0o777)' ok
says M 'for i in range(400): guarded("guards/n%d" % i)' EDQUOT
says A 'acquire("guards/n1")' EEXIST
expect_is "$(grep -c ^guards/ "$MNT/.leasefs/locks")" 298
others_lock

it "open files of .leasefs: EDQUOT beyond 16 for a user, the others still open them"
says M '[os.open(path(".leasefs/metrics"), os.O_RDONLY) for i in range(100)]' EDQUOT
says M 'os.open(path(".leasefs/status"), os.O_RDONLY)' EDQUOT
others_lock

# What the daemon of $MNT has in memory, MB.
memory() { awk '$1 == "VmRSS:" { print int($2 / 1024) }' "/proc/${mount_daemons[INDEX]}/status"; }
less() { [ "$1" -lt "$2" ]; }
# A sanitizer keeps memory that the daemon has freed.
is_sanitized() { ldd "$LEASEFS" | grep -q libasan; }
grows_less_than() { is_sanitized || expect less "$(memory)" $((before + $1)); } # MIB

it "open directories, and long tables that are read, do not fill the daemon's memory"
mount_memory allow_other,ttl=60
mount_index "$MNT"
before=$(memory)
end_actor M
attacker M
says M 'import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)' ok
says M 'os.mkdir(path("names"))' ok
says M 'for i in range(256): os.mkdir(path("names/" + "x" * 250 + "%03d" % i))' ok
says M 'fds = [op("names", "RDONLY") for i in range(3000)]' ok
says M '{getdents(fd) > 1000 for fd in fds}' '{True}'
grows_less_than 60
says M 'len({tuple(os.listdir(fd)) for fd in fds[:300] + fds[-9:]})' 1 # each listing continues at its own position
says M '[os.lseek(fd, 0, 0) for fd in fds[:300]][0]' 0
says M '{len(os.listdir(fd)) for fd in fds[:300]}' '{256}'
says M '[os.close(fd) for fd in fds][0]' '@(None|ok)'
says M 'deep = "names/" + "x" * 250 + "000"' ok
says M 'for i in range(3000): acquire(deep + "/" + chr(1) * 200 + str(i))' ok
says M 'fds = [op(".leasefs/locks", "RDONLY") for i in range(16)]' ok
says M '{sum(len(b) for b in iter(lambda: os.read(fd, 1 << 16), b"")) > 3000000 for fd in fds}' '{True}'
grows_less_than 40
says M 'os.pread(fds[0], 4, 0)' "b'name'"

it "far seeks in a large directory by six processes hold nobody up, and end nothing"
mount_memory allow_other,ttl=60
big=$MNT
mkdir -m 1777 "$MNT/big"
expect "$PYTHON" -S -E -c 'import os, sys
for i in range(50000): os.close(os.open(sys.argv[1] + "/%d" % i, os.O_CREAT | os.O_EXCL | os.O_WRONLY))' "$MNT/big"
mount_index "$MNT"
expect prlimit --pid "${mount_daemons[INDEX]}" --stack=262144:
end_actor A
victim A
for i in {1..6}; do
    start setpriv --reuid="$MALLORY" --regid="$MALLORY" --init-groups --inh-caps=-all -- "$PYTHON" -S -E -c 'import os, sys
while True:
    d = os.open(sys.argv[1], os.O_RDONLY)
    os.lseek(d, 1 << 40, os.SEEK_SET)
    os.listdir(d)
    os.close(d)' "$MNT/big"
    seekers[i]=$STARTED
done
for i in {1..5}; do others_lock; done
for pid in "${seekers[@]}"; do end_process "$pid"; done
MNT=$big
others_lock

it "six processes that read the tickets among 50000 names hold nobody up"
exec {ticket}<>"$MNT/big/zz-"
for i in {1..6}; do
    start setpriv --reuid="$MALLORY" --regid="$MALLORY" --init-groups --inh-caps=-all -- "$PYTHON" -S -E -c 'import os, sys
while True:
    if os.getxattr(sys.argv[1], "user.lease.tickets").split(b"\t")[0] != b"zz-0000000000": sys.exit(1)' "$MNT/big"
    askers[i]=$STARTED
done
for i in {1..5}; do others_lock; done
for pid in "${askers[@]}"; do expect kill -0 "$pid"; end_process "$pid"; done
exec {ticket}>&-

it "30 lock owners with 4000 byte ranges each, for whom 200 wait, hold nobody up"
mount_memory allow_other,ttl=60
start setpriv --reuid="$MALLORY" --regid="$MALLORY" --init-groups --inh-caps=-all -- "$PYTHON" -S -E -c 'import fcntl, os, struct, sys
owners = [os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for i in range(30)]
for k in range(4000):
    for i, fd in enumerate(owners): fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * (30 * k + i), 1, 0))
for i in range(200):
    if os.fork() == 0:
        fd = os.open(sys.argv[1], os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 2 * (30 * 3999 + 29))
os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
fd, free = os.open(sys.argv[1], os.O_RDWR), 10**9
while True:
    for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK): fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, free, 1, 0))' "$MNT/ranges" "$MNT/ready"
expect eventually 120 test -e "$MNT/ready"
end_actor A
victim A
SECONDS=0
others_lock
expect less "$SECONDS" 20 # with a search through all ranges: a minute
pkill -9 -U "$MALLORY"
expect eventually 5 absent ranges
others_lock

finish
