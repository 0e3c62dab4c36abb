#!/bin/bash
# Directories: readdir that is exact under concurrent change, statfs, nesting, symbolic links.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory ttl=60
actor A
actor B

used() { stat -f -c '%c %d' "$MNT" | { read -r all free; echo $((all - free)); }; }

it "statfs: locks held are the files used, directories are not"
expect_is "$(used)" 0
says A 'acquire("one"); acquire("two"); ln("t", "three")' ok
expect_is "$(used)" 3
says A 'os.mkdir(path("dir")); acquire("dir/four")' ok
expect_is "$(used)" 4
says A 'rm("one")' ok
expect_is "$(used)" 3
expect_is "$(df --output=iused "$MNT" | tail -1 | tr -d ' ')" 3
expect_is "$(stat -f -c %l "$MNT")" 255
says A 'rm("two"); rm("three"); rm("dir/four"); os.rmdir(path("dir"))' ok
expect_is "$(used)" 0

it "an expired lease is no longer counted"
says A 'acquire("short"); put("short", "ttl", "100ms")' ok
expect eventually 3 absent short
expect_is "$(used)" 0

it "df shows what a user may have and has, and root has no limit; without one, much"
POINT=$MNT
mount_memory allow_other,user_locks=100,user_content=64K
actor U setpriv --reuid=65534 --regid=65534 --clear-groups
free() { "$@" df --output=itotal,iused,iavail,size,used,avail "$MNT" | tail -1 | tr -s ' ' | sed 's/^ //'; }
user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
expect_is "$(free "${user[@]}")" "100 0 100 64 0 64"
says U 'acquire("one"); acquire("two", "x" * 9000); os.mkdir(path("dir"))' ok
expect_is "$(free "${user[@]}")" "99 2 97 64 12 52" # 100 less two locks and a directory
expect_is "$(df --output=iused,used "$MNT" | tail -1 | tr -s ' ' | sed 's/^ //')" "2 12"
expect_between 4000000000 "$(df --output=iavail "$MNT" | tail -1)" 5000000000
says U 'acquire("three", "x" * 60000)' EDQUOT
says U 'rm("three")' ok
says U '[acquire("l%d" % i) for i in range(97)] and None' ok
says U 'acquire("more")' EDQUOT
expect_is "$(free "${user[@]}")" "* 99 0 64 12 52"
says A '[acquire("root%d" % i) for i in range(101)] and None' ok
expect_between 0 "$(df --output=ipcent "$MNT" | tail -1 | tr -d ' %')" 1
says A '[rm("root%d" % i) for i in range(101)] and None' ok
says U 'rm("two")' ok
expect_is "$(free "${user[@]}")" "99 98 1 64 0 64"
end_actor U
unmount "$MNT"
mount_memory user_locks=0,user_content=0
expect_between 4000000000 "$(df --output=iavail "$MNT" | tail -1)" 5000000000
expect_between 4000000000 "$(df --output=avail "$MNT" | tail -1)" 99999999999
unmount "$MNT"
MNT=$POINT

it "ls of an empty directory shows . and .. only"
expect_is "$(ls -A "$MNT")" ""
expect_is "$(ls -a "$MNT" | tr '\n' ' ')" ". .. "

it "readdir tells the types: locks are files, symlink leases links, directories directories"
says A 'acquire("f"); ln("x", "l"); os.mkdir(path("d"))' ok
expect_is "$(find "$MNT" -mindepth 1 -printf '%f%y ' | tr ' ' '\n' | sort | tr '\n' ' ')" "*dd ff ll *"
says A '[(e.name, e.is_file(follow_symlinks=False), e.is_symlink(), e.is_dir(follow_symlinks=False)) for e in sorted(os.scandir(BASE), key=lambda e: e.name)]' \
    "[[]('d', False, False, True), ('f', True, False, False), ('l', False, True, False)[]]"
says A 'sorted((e.name, e.inode() == os.lstat(e.path).st_ino) for e in os.scandir(BASE))' \
    "[[]('d', True), ('f', True), ('l', True)[]]"
says A 'rm("f"); rm("l"); os.rmdir(path("d"))' ok

it "a provisional name is listed, an idle handle's is not"
says A 'f = op("prov")' ok
expect_is "$(ls "$MNT")" prov
expect eventually 4 absent prov
expect_is "$(ls "$MNT")" ""

it "directories nest; a directory's nlink, size and type are a directory's"
deep=d
mkdir "$MNT/d"
for _ in {1..30}; do
    deep=$deep/d
    mkdir "$MNT/$deep"
done
says A "acquire('$deep/lock', 'deep')" ok
expect_is "$(cat "$MNT/$deep/lock")" deep
expect_is "$(find "$MNT" -type d | wc -l)" 32
expect_is "$(find "$MNT" -type f | wc -l)" 1
expect_not rmdir "$MNT/d" 2>/dev/null
says A "rm('$deep/lock')" ok
expect find "$MNT/d" -depth -type d -exec rmdir {} +
expect absent d

it "mkdir -p, touch dir/lock, ls, rm as a user types them"
expect mkdir -p "$MNT/a/b/c"
expect touch "$MNT/a/b/c/lock"
expect_is "$(ls "$MNT/a/b/c")" lock
expect rm "$MNT/a/b/c/lock"
expect bash -c 'cd "$1" && rmdir -p a/b/c' _ "$MNT"
expect absent a

it "the working directory of a process may be inside, removed or not"
says A 'os.mkdir(path("cwd")); os.chdir(path("cwd")); os.close(os.open("rel", os.O_CREAT | os.O_EXCL | os.O_WRONLY))' ok
expect exists cwd/rel
says A 'os.unlink("rel"); os.rmdir(path("cwd"))' ok
says A 'os.open("rel", os.O_CREAT | os.O_EXCL | os.O_WRONLY)' ENOENT
says A 'os.listdir(".")' '@(ENOENT|[[][]])'
says A 'os.chdir("/")' ok

it "symbolic links: the target is any text, and leads nobody elsewhere"
says A 'acquire("target", "there"); ln("target", "link")' ok
expect_is "$(readlink "$MNT/link")" target
says B 'op("link", "RDONLY")' ELOOP
says A 'ln("x" * 4000, "long"); len(os.readlink(path("long")))' ok
expect_is "$(readlink "$MNT/long" | tr -d '\n' | wc -c)" 4000
expect_is "$(stat -c %s "$MNT/long")" 4000
says A 'rm("target"); rm("link"); rm("long")' ok

it "a symlink lease expires like any other"
actor C
says C 'ln("pid 17", "linklease")' ok
says A 'exists("linklease")' True
end_actor C
says A 'exists("linklease")' True
expect_is "$(readlink "$MNT/linklease")" "pid 17"
says A 'rm("linklease")' ok
home=$MNT
mount_memory ttl=1s
actor C
says C 'ln("pid 17", "linklease")' ok
pause 1.3
expect exists linklease
end_actor C
expect eventually 4 absent linklease
MNT=$home

it "readdir of 20,000 names is exact while they change"
mkdir "$MNT/many"
expect timeout 200 "$PYTHON" -S -E "$E2E_DIR/listing.py" "$MNT/many" "${E2E_NAMES:-20000}" 5 "${E2E_SEED:-$RANDOM}"

it "a seek far behind the end of a large directory is answered, on a small stack"
expect mount_index "$MNT"
expect prlimit --pid "${mount_daemons[INDEX]}" --stack=262144:
says A "d = os.open(path('many'), os.O_RDONLY); os.lseek(d, 1 << 40, os.SEEK_SET)" ok
says A '[getdents(d), getdents(d)]' "[[]0, 0[]]"
says A 'os.lseek(d, 0, os.SEEK_SET)' 0
says A 'len(os.listdir(d)) >= 20000' True
expect_not gone "${mount_daemons[INDEX]}"

it "who reads on at the end of a directory is told nothing twice"
says A 'sum(1 for _ in iter(lambda: getdents(d), 0)) > 10' True
says A '[getdents(d), getdents(d), getdents(d)]' "[[]0, 0, 0[]]"
says A 'os.close(d)' ok

it "a directory that is read again from its beginning shows what is there now"
mkdir "$MNT/rewind"
says A 'acquire("rewind/1"); d = os.open(path("rewind"), os.O_RDONLY)' ok
says A 'os.listdir(d)' "[[]'1'[]]"
says A 'acquire("rewind/2"); rm("rewind/1")' ok
says A 'os.listdir(d)' "[[]'2'[]]"
says A 'os.close(d)' ok

# But for lists of attributes, which newer versions of ls ask for of each file.
requests() { awk '/^leasefs_requests_total/ && !/"listxattr"/ { n += $2 } END { print n }' "$MNT/.leasefs/metrics"; }
mkdir "$MNT/listed"
says A '[acquire("listed/l%d" % i) for i in range(400)] and None' ok
if [ "${E2E_STORE:-}" != redis ]; then # there another mount may have changed each of them
    it "ls -la of 400 leases asks the kernel for less than one request in four names"
    before=$(requests)
    expect_is "$(ls -la "$MNT/listed" | wc -l)" 403
    expect_between 1 $(($(requests) - before)) 100 # 1600 when each is looked up and asked for attributes, label and access list
fi

it "what ls -la has shown is shown no more when it has changed"
expect_is "$(ls -la "$MNT/listed" | wc -l)" 403
says A '(hardlink("listed/l1", "listed/other"), stat("listed/l1", "nlink"))[1]' 2
says A '(rm("listed/l2"), exists("listed/l2"))[1]' False
says A 'f = op("listed/l3", "WRONLY")' ok
says A '(write(f, "text"), stat("listed/l3", "size"))[1]' 4
says A '(os.chmod(path("listed/l4"), 0o600), stat("listed/l4", "mode") & 0o777)[1]' 384
says A 'close(f)' ok
expect_is "$(ls -la "$MNT/listed" | wc -l)" 403
says A 'put("listed/l5", "ttl", "100ms")' ok
expect eventually 4 absent listed/l5

it "the hidden parts stay hidden: nothing is listed that nobody made"
says A 'sorted(os.listdir(BASE))' "*"
expect_is "$(ls -A "$MNT" | tr '\n' ' ')" "listed many rewind "

finish
