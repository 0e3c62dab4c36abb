-- head: a lock on one of several servers that know nothing of each other.
--
--   L       string  the token of its holder; its PX is the deadline.  The lock that other clients know.  While the guard
--                   of one that has lost it runs: that token with a g for its first letter
--   RECORD  hash    of that holder, if it is a mount: token, number (0: a majority is still to keep it), kind, since (server ms), ttl, revision (of what it
--                   says, growing), meta, content; ends with L
--   NUMBER  string  the last fencing number that was told, or is to be told; of one that was broken the next
--   LIST    zset    names in its directory, all of score 0; some may be left over
-- A directory is a hash DIR: made (who made it), ttl, revision, meta.
--
-- Each script answers first one word, which is its vote; '': it has none.  The last of ARGV is '1' if this server has
-- been started so lately that it may have forgotten locks.
local L, RECORD, NUMBER, LIST = unpack(KEYS)
local call = redis.call
local NUMBER_KEPT = 604800000 -- ms: seven days
local held_off = ARGV[#ARGV] == '1'

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

local function text(x) return string.format('%.0f', x) end

local function last_number()
  local last = redis.pcall('GET', NUMBER)
  return type(last) == 'string' and tonumber(last) or 0
end

-- What a holder's number is to be at least: the clock's, so that it grows although this server has forgotten the last.
local function next_number() return text(math.max(last_number() + 1, now_us)) end

-- What stands in L, a false if nothing does, '' if it is no string, which is a stranger's.
local function holder()
  local value = redis.pcall('GET', L)
  if type(value) ~= 'table' then return value end
  if not value.err:find('WRONGTYPE', 1, true) then error(value.err) end
  return ''
end

local function held(value)
  local answer = {'held', next_number(), redis.sha1hex(value)}
  local r = call('HMGET', RECORD, 'token', 'number', 'kind', 'since', 'ttl', 'revision', 'meta', 'content')
  local ours = r[1] == value
  answer[4], answer[5] = ours and value or '', call('PTTL', L)
  if ours then
    for i, x in ipairs({r[2], r[3], text(now - r[4]), r[5], r[6], r[7], r[8]:sub(1, 65536)}) do answer[5 + i] = x end
  end
  return answer
end

-- Whether what stands in L was over before that number was given: a try has none yet, and of two that were told the lesser ended.
local function is_before(value, number)
  local r = call('HMGET', RECORD, 'token', 'number')
  return r[1] == value and tonumber(r[2]) < tonumber(number)
end

-- From ARGV[from] on: ttl of the lease, age, revision, kind, number, meta, content.
local function write_record(token, from)
  local ttl, age, revision, kind, number, meta, content = unpack(ARGV, from, from + 6)
  local r = call('HMGET', RECORD, 'token', 'revision')
  if r[1] ~= token or tonumber(r[2]) < tonumber(revision) then
    call('DEL', RECORD)
    call('HSET', RECORD, 'token', token, 'number', number, 'kind', kind, 'since', text(now - age), 'ttl', ttl,
      'revision', revision, 'meta', meta, 'content', content)
  else
    call('HSET', RECORD, 'number', number, 'ttl', ttl)
  end
end
