-- head: a lock on one of several servers that know nothing of each other.
--
--   L       string  the lock, as other clients of the algorithm know it: its holder's token; its PX is the deadline.
--                   During a guard: that token with g as its first letter
--   RECORD  hash    of the holder, if it is a mount: token, number (the fencing token; 0: no majority has it yet), kind,
--                   since (server ms), ttl, revision (only grows), meta, content; expires with L
--   NUMBER  string  the last fencing token that was given; after a break the next one
--   LIST    zset    names in the directory, all of score 0; some may be stale
--   NOTES    zset    a note 'TOKEN NAME' of each lease and handle lock of a mount; by these its next daemon finds them.  The
--                   score is the pid of a handle lock's holder, -1 if that is not known; 0: a lease
-- A directory is a hash DIR: made (the id of its creation), ttl, revision, meta.
--
-- The first word of each script's answer is its vote; '': none.  The last of ARGV is '1' if this server has started so
-- recently that it may have lost locks.
local L, RECORD, NUMBER, LIST = unpack(KEYS)
local call = redis.call
local NUMBER_KEPT = 604800000 -- ms: seven days; NOTES as well
local held_off = ARGV[#ARGV] == '1'

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

local function text(x) return string.format('%.0f', x) end

local function last_number()
  local last = redis.pcall('GET', NUMBER)
  return type(last) == 'string' and tonumber(last) or 0
end

-- The least fencing token of a new holder; it follows the clock, so it grows even if this server has lost the last one.
local function next_number() return text(math.max(last_number() + 1, now_us)) end

-- The value of L; false: none; '': another client's key that is no string.
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

-- Had the holder in L ended before `number` was given?  Yes if its number is lower, or 0 (a claim without a majority).
local function is_before(value, number)
  local r = call('HMGET', RECORD, 'token', 'number')
  return r[1] == value and tonumber(r[2]) < tonumber(number)
end

-- ARGV from ARGV[from] on: ttl of the lease, age, revision, kind, number, meta, content.
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
