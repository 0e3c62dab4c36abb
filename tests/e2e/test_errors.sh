#!/bin/bash
# The table "Errors": one meaning each.  (EEXIST, EBUSY and ESTALE have more cases in the tests of their tables.)
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

mount_memory
actor A
actor B

it "EEXIST, EBUSY: held by another"
says A 'acquire("held")' ok
says B 'acquire("held")' EEXIST
says B 'op("held")' EBUSY

it "date >L by a child of the holder is EBUSY, young or old, and the log says once what works, which does"
said() { grep -c 'write refused: pid .* is a child of the holder' "$LOG"; }
bash -c 'touch "$1" && { date >"$1"; result=$?; rm "$1"; exit "$result"; }' - "$MNT/young" 2>/dev/null
expect_is "$?" 1
expect_is "$(said)" 1
expect grep -q '^leasefs: young: write refused: pid [0-9]* (bash) .*exec 9>>LOCK; date >&9' "$LOG"
start bash -c 'touch "$1" && sleep 1.2 && echo mine >"$1" && { date >"$1"; date >"$1"; exec 9>>"$1"; echo then | cat >&9; echo "$(echo last)" >>"$1"; }
    cat "$1" >"$2"; rm "$1"' - "$MNT/old" "$TEST_DIR/read" 2>/dev/null
wait "$STARTED"
expect_is "$(cat "$TEST_DIR/read")" $'mine\nthen\nlast'
expect_is "$(said)" 1 # another name, but the notice was logged just now
bash -c 'touch "$1"; touch "$1"; rm "$1"' - "$MNT/touched" 2>/dev/null
expect_is "$(said)" 1

it "editors of a held lock change nothing: they say EBUSY, and leave nothing behind"
edit() { # COMMAND…, whose last argument is the lock
    start bash -c 'lock=${!#}; touch "$lock" && sleep 1.1 && echo mine >"$lock" && "$@" >/dev/null 2>&1
        echo "$? $(cat "$lock")" >"$OUT"; rm "$lock"' - "$@"
    wait "$STARTED"
    expect_is "$(cat "$OUT")" "[1-9]* mine" "$1"
    expect_is "$(ls "$MNT")" held "$1"
}
export OUT=$TEST_DIR/edited
edit sed -i s/mine/theirs/ "$MNT/edited"
for editor in vim ed; do
    command -v "$editor" >/dev/null || continue
    case $editor in
    vim) edit vim -N -u NONE -es -c '%s/mine/theirs/' -c wq "$MNT/edited" ;;
    ed) edit bash -c 'printf "%s\n" ",s/mine/theirs/" w q | ed -s "$1"' - "$MNT/edited" ;;
    esac
done

it "EPERM: not yours to release or change"
says B 'rm("held")' EPERM
says B 'os.chmod(path("held"), 0)' EPERM
says B 'os.chown(path("held"), 1, 1)' EPERM
says B 'put("held", "ttl", "1h")' EPERM

it "ESTALE: you no longer hold it; wrong token"
says A 'f = op("stale", "RDWR|CREAT|EXCL"); put("stale", "ttl", "100ms")' ok
expect eventually 2 absent stale
says A 'write(f, "x")' ESTALE
says A 'put("held", "check", "12345678901")' ESTALE

it "EINVAL: bad attribute value or name"
says A 'put("held", "ttl", "soon")' EINVAL
says A 'put("held", "ttl", "")' EINVAL
says A 'put("held", "release", "x")' 'E@(INVAL|STALE)'
says A 'put("held", "frobnicate", "x")' EINVAL
says A 'put("", "ttl", "1ms")' EINVAL
says A 'put("", "width", "0")' 'E@(INVAL|OPNOTSUPP)'

it "a name of 255 bytes works in every call"
long=$(printf 'n%.0s' {1..255})
says A "acquire('$long', 'x')" ok
expect_is "$(cat "$MNT/$long")" x
says A "ls().count('$long')" 1
says A "rm('$long')" ok
says A "ln('t', '$long')" ok
says A "rm('$long')" ok
says A "os.mkdir(path('$long'))" ok
says A "acquire('$long/$long')" ok
says A "rm('$long/$long')" ok
says A "os.rmdir(path('$long'))" ok

it "ENAMETOOLONG: a name over 255 bytes, in every call"
long=${long}n
says A "acquire('$long')" ENAMETOOLONG
says A "op('$long')" ENAMETOOLONG
says A "op('$long', 'RDONLY')" ENAMETOOLONG
says A "ln('t', '$long')" ENAMETOOLONG
says A "os.mkdir(path('$long'))" ENAMETOOLONG
says A "os.rmdir(path('$long'))" ENAMETOOLONG
says A "rm('$long')" ENAMETOOLONG
says A "stat('$long', 'ino')" ENAMETOOLONG
says A "mv('held', '$long')" ENAMETOOLONG
says A "hardlink('held', '$long')" ENAMETOOLONG
says A "op('${long:11}-')" ENAMETOOLONG
says A "acquire('${long:11}-')" ENAMETOOLONG
says A "ln('t', '${long:11}-')" ENAMETOOLONG
says A "os.mknod(path('${long:11}-'))" ENAMETOOLONG
expect_is "$(ls "$MNT")" "held"
says A "f = op('${long:12}-')" ok
says A 'flock(f, "EX|NB"); close(f)' ok

it "EFBIG: content too large"
says A 'f = op("big", "RDWR|CREAT|EXCL"); write(f, "x" * 65537)' '@(EFBIG|short|ok)'
says A 'write(f, "x" * 65537)' EFBIG
expect [ "$(stat -c %s "$MNT/big")" -le 65536 ]

it "a component that is a lock is ENOTDIR, a directory in between that is missing is ENOENT"
says A 'acquire("held/below")' ENOTDIR
says A 'acquire("no/such")' ENOENT
says A 'os.mkdir(path("no/such"))' ENOENT
says A 'os.rmdir(path("held"))' ENOTDIR
says A 'os.mkdir(path("dir"))' ok
says A 'rm("dir")' '@(EISDIR|EPERM)'
says A 'op("dir")' EISDIR
says A 'os.rmdir(path("nodir"))' ENOENT

it "what is not a lock cannot be made: mkfifo, device nodes, sockets"
says A 'os.mkfifo(path("fifo"))' 'E*'
says A 'os.mknod(path("node"), 0o20600, 259)' 'E*'
expect absent fifo
expect absent node

it "rename and link by another are refused, and change nothing"
says B 'mv("held", "moved")' 'E@(PERM|BUSY)'
says B 'hardlink("held", "held2")' 'E*'
expect exists held
expect absent moved
expect absent held2

it "names with spaces, newlines, non-ASCII and non-UTF-8 bytes"
says A 'acquire("with space"); acquire("new\nline"); acquire("näme"); acquire(b"\xff\xfe".decode("utf-8", "surrogateescape"))' ok
says A 'len(os.listdir(BASE)) >= 4 and b"\xff\xfe" in os.listdir(os.fsencode(BASE))' True
says A 'all(exists(n) for n in ("with space", "new\nline", "näme"))' True
says A 'rm("new\nline"); rm(b"\xff\xfe".decode("utf-8", "surrogateescape"))' ok
says A 'exists("new\nline")' False

it "a store that is full: no grant is told that is not kept, the leases there stay"
state=$TEST_DIR/small
mkdir "$state"
if mount -t tmpfs -o size=512k leasefs-e2e "$state"; then
    small_device=$(device_of "$state/.")
    mount_local "$state/store"
    actor F
    says F 'acquire("first", "kept")' ok
    says F 'n = 0' ok
    reply=$(ASK_LIMIT=120 ask F 'exec("while n < 20000:\n acquire(\"fill%d\" % n, \"x\" * 1000)\n n += 1")')
    expect_re "$reply" '^(ENOSPC|ENOLCK|EDQUOT)$' "the refusal"
    n=$(ask F n)
    say "$n leases of a kilobyte went in"
    expect [ "$n" -gt 10 ]
    says F "exists('fill$((n + 1))')" False
    says F 'content("first")' kept
    says F "exists('fill$((n - 1))')" True
    says F 'acquire("another")' '@(ENOSPC|ENOLCK|EDQUOT|EEXIST)'
    expect [ -s "$LOG" ]
    point=$MNT
    crash "$point"
    mount -o remount,size=8m "$state"
    mount_at "$point" "local:$state/store" ""
    it "after room was made, a restart has every lease that was confirmed"
    says F 'content("first")' kept
    says F "sum(exists('fill%d' % i) for i in range($n))" "$n"
    says F 'acquire("now there is room")' ok
    end_actor F
    unmount "$MNT"
    mounted_as "$state" "$small_device" && umount "$state"
else
    say "no tmpfs here"
    pass
fi

finish
