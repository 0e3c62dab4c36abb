#!/bin/bash
# Names that would be keys of the store itself, and another client of the Redis server that writes anything: neither
# gets more than the lock that it names.
# shellcheck source=attack.sh
. "$(dirname "$0")/attack.sh"
# shellcheck source=../e2e/redis.sh
. "$(dirname "$0")/../e2e/redis.sh"

# The victim's lock is taken, kept and let go, as if nobody else were there.
works() { # NAME
    says V "acquire('$1', 'mine')" ok
    says V "content('$1')" mine
    says V "get('$1', 'state')" held
    says V "rm('$1')" ok
    says V "h = op('$1', 'RDWR|CREAT'); flock(h, 'EX|NB')" ok
    says V 'os.fsync(h)' ok
    says V 'os.close(h)' ok
}

# All that a name can be used for; the file must not come to be.
forbidden() { # NAME
    says M "acquire('''$1''')" EINVAL
    says M "op('''$1''', 'WRONLY|CREAT')" EINVAL
    says M "ln('x', '''$1''')" EINVAL
    says M "os.mkdir(path('''$1'''))" EINVAL
    says M "mv('own', '''$1''')" EINVAL
    says M "hardlink('own', '''$1''')" EINVAL
    [[ $1 != lfs:* ]] || says M "op('''$1-''', 'RDWR|CREAT')" EINVAL
    says M "i = op('''$1''', 'RDONLY|CREAT'); flock(i, 'EX')" EINVAL
    says M "record(i, 'SETLK', 'RDLCK')" EINVAL
    says M 'os.close(i)' ok
    says M "exists('''$1''')" False
    says M "stat('''$1''', 'size')" ENOENT
    says M "exists('own')" True
}

# Changes the record `r` of the lock big, which is in the value of its key (behind a word and the token).
forge_record() { # LUA, of what was asked for (r) and what stands before it: number, time and lock-delay
    expect_is "$(redis_cli EVAL "local v = redis.call('GET', 'big') local head, at = v:match('^(%d+ %d+ %d+ )()', 45)
        local r = cmsgpack.unpack(v:sub(at)) $1
        return redis.call('SET', 'big', v:sub(1, 44) .. head .. (r and cmsgpack.pack(r) or 'theirs'), 'PX', 60000)" 0)" OK "forged"
}

redis_start
mount_redis allow_other
victim V
attacker M

it "a name that would be a key of ours is EINVAL, and leaves every lock alone"
says V 'os.umask(0o077)' '*'
says M 'acquire("own")' ok
works build
before=$(redis_cli DBSIZE)
for letter in f t o w i d l q m; do
    forbidden "lfs:$letter:build"
done
forbidden "lfs:"
expect_is "$(redis_cli DBSIZE)" "$before" "keys"
works build

it "what a mount keeps of itself has no name"
says V 'acquire("kept")' ok
identity=$(redis_cli --scan --pattern 'lfs:m:*')
expect_re "$identity" '^lfs:m:[0-9a-f]+$'
forbidden "$identity"
works build
says V 'rm("kept")' ok

it "what is in a directory of mode 0700 has no other name"
says V 'os.mkdir(path("private"), 0o700); acquire("private/x", "secret")' ok
says M 'content("private/x")' EACCES
says M 'os.mkdir(path("{private"))' ok
says M 'acquire("{private/x}", "public")' ok
says M 'content("{private/x}")' public
says V 'content("private/x")' secret
says M 'rm("{private/x}")' ok
says M 'op("lfs:i:private/x")' 'E@(INVAL|NOENT)'
says M 'os.mkdir(path("lfs:i:{private"))' EINVAL
says V 'content("private/x")' secret
says V 'rm("private/x")' ok
works private/x

it "a name is not the root of another mount whose prefix it is"
mount_redis allow_other,prefix=app:
app=$MNT
expect mkdir "$app/q"
MNT=${mount_points[0]}
says M 'os.mkdir(path("app:"), 0o777); put("app:", "width", 9)' ok
expect_is "$(getfattr --absolute-names --only-values -n user.lease.width "$app")" 1 "width of the root"
says M 'os.rmdir(path("app:"))' ok
expect exists own

it "a side key of the wrong type costs that one lock an EIO, and the log names it"
works build
says V 'acquire("other", "mine")' ok
redis_cli SET 'lfs:o:build' theirs >/dev/null
says V 'acquire("build")' EIO
says V 'op("build", "RDONLY|CREAT")' EIO
says V 'op("build", "WRONLY|CREAT")' EIO
expect eventually 5 grep -qF "redis-cli DEL 'lfs:o:build'" "${mount_logs[0]}"
says V 'content("other")' mine
works third
expect_re " $(ls "$MNT" | tr '\n' ' ')" ' other '
redis_cli DEL 'lfs:o:build' >/dev/null
works build
says V 'rm("other")' ok

it "keys that all locks have in common cost an EIO, too, until somebody deletes them, as the log says"
says V 'os.umask(0)' '*'
for key in 'lfs:l:lfs:/' 'lfs:q:lfs:/' 'lfs:d:lfs:/' "$identity"; do
    says V 'f = op("waited", "RDWR|CREAT"); flock(f, "EX")' ok
    redis_cli DEL "$key" >/dev/null
    redis_cli SET "$key" theirs >/dev/null
    case $key in
    lfs:q:*) says M 'w = op("waited", "RDWR|CREAT"); flock(w, "EX")' EIO ;;
    *) says M 'acquire("build")' EIO ;;
    esac
    expect eventually 5 grep -qF "redis-cli DEL '$key'" "${mount_logs[0]}"
    expect_is "$(redis_cli GET "$key")" theirs
    redis_cli DEL "$key" >/dev/null
    says V 'flock(f, "UN"); os.close(f)' ok
    works build
    expect ls "$MNT"
done

it "a list of names that somebody else has written to hides nothing"
says V 'acquire("shown")' ok
redis_cli EVAL "for i = 1, 600 do redis.call('ZADD', 'lfs:l:lfs:/', 0, '!/' .. i) redis.call('SET', '!/' .. i, 1) end" 0 >/dev/null
redis_cli ZADD 'lfs:l:lfs:/' 0 .. 0 '' 0 a/b >/dev/null
expect_re " $(ls "$MNT" | tr '\n' ' ')" ' shown '
says V 'rm("shown")' ok

it "content, meta and records that somebody else has written harm no other lock"
says V 'acquire("big", "mine")' ok
works build
forge_record "r.content = string.rep('x', 1000000)"
says V 'len(content("big"))' 65536
forge_record "r.meta, r.ttl = r.meta:gsub('1006%d%d', '104777'), 1e300 head = head:gsub(' %d+', ' ' .. ('9'):rep(300), 1)"
expect_not [ -u "$MNT/big" ]
forge_record "r = nil"
works build
redis_cli DEL big 'lfs:i:big' 'lfs:o:big' 'lfs:t:big' >/dev/null
says V 'get("big", "state")' '@(lost|free)'
works big

it "state, read and fsync tell the same of a lock whose key somebody else has deleted or taken"
for command in 'DEL lost' 'SET lost theirs' 'PEXPIRE lost 1'; do
    for lock in 'flock(f, "EX")' 'record(f, "SETLK", "WRLCK", 0, 10)' 'write(f, "text")'; do
        for first in 'get(f, "state")' 'os.fsync(f)' 'read(f)'; do
            says V "f = op('lost', 'RDWR|CREAT'); $lock" ok
            says V 'get(f, "state")' held
            read -ra words <<<"$command"
            redis_cli "${words[@]}" >/dev/null
            pause 0.01
            says V "$first" '@(lost|ESTALE)'
            says V 'get(f, "state")' lost
            says V 'os.fsync(f)' ESTALE
            says V 'read(f)' ESTALE
            says V 'poll(f, "IN")' '*ERR*'
            says V 'os.close(f)' ok
            redis_cli DEL lost >/dev/null
            expect eventually 10 absent lost
        done
    done
done
works lost

it "a prefix under which all names would be keys of ours is refused"
new_mountpoint
expect_not timeout 20 "$LEASEFS" -o prefix=lfs: "$REDIS_URI" "$MNT" 2>"$TEST_DIR/refused"
expect grep -qF 'begin with lfs:' "$TEST_DIR/refused"
MNT=${mount_points[0]}

says M 'rm("own")' ok
finish
