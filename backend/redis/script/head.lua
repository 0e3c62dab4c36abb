-- head: a lock in the server, and how it is read.  Stands before every script
-- about one.
-- What follows is kept short, since a script makes its functions anew at each
-- call: what only a contended lock needs is in common.lua, behind the short ways
-- of acquire_free.lua and release_lone.lua.
--
-- Of a lock (or of the queue of a directory, `sequence`) with the key L:
--   L      string  the token of its only holder, or a word of ours (below); its
--                  PX is the deadline.  The lock that other clients know.
--   ORDER  zset    ticket -> number: holders and waiters
--   TERM   zset    ticket -> deadline in server ms: of the lease, or of a waiter's liveness
--   WAIT   zset    ticket -> number: those that do not hold yet
--   INFO   hash    ticket -> record; c:ticket -> content; s:name -> ticket of a sequence;
--                  odd -> 1 when counts do not decide (byte ranges, kin); top -> highest number granted;
--                  readers -> 1 when no exclusive ticket of a sequence holds; p:mount lock owner -> the ticket
--                  with which it holds; kin, looked, seen: what is covered, see common.lua
--   FENCE  string  the last number given
-- Of its directory: DIR (hash: attributes), LIST (zset: names, all of score 0),
-- WAITERS (zset: waiting ticket -> deadline).  SELF is the hash that would make
-- the name itself a directory.  MINE is the set of the leases of the mount that asks.
--
-- A script touches no keys but those that it is given.
--
-- L is the authority: when it is gone or another's, our holders are gone.
local L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF, MINE = unpack(KEYS)
local call = redis.call

local SHARED = 'leasefs:held' -- several hold, or one that is not exclusive
local DELAY = 'leasefs:delay' -- nobody holds: the directory's lock-delay runs
local CLAIM = 3000            -- ms that who was handed the lock has to claim it
local FENCE_KEPT = 604800000  -- ms: seven days
local KEPT = 60000            -- ms that side keys outlive the last deadline
local FIRST, LAST = '0000000000000000', 'ffffffffffffffff'

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

local a = cmsgpack.unpack(ARGV[1]) -- what the script is to do: fields of these names; one that is not there is nil
local leaf, sequence, id = a.leaf, a.sequence, a.ticket
local value, who, tickets, waiting, odd, top, broken -- see look

local function number_text(x) return string.format('%.0f', x) end

-- What a mount that starts again finds its leases by; kept with the lease is t.f, its path.  Those that another mount has
-- ended stay until then.
local function in_mine(id, t) return id .. (sequence and ' s ' or ' l ') .. t.f end

local function remember(id, t)
  if t.k ~= 1 then return end
  call('SADD', MINE, in_mine(id, t))
  call('PEXPIRE', MINE, FENCE_KEPT)
end

local function forget(id, t)
  if t.k == 1 then redis.pcall('SREM', MINE, in_mine(id, t)) end
end

local function load(id)
  local packed = call('HGET', INFO, id)
  return packed and cmsgpack.unpack(packed)
end

local function waits(id) return waiting > 0 and call('ZSCORE', WAIT, id) end

-- Walks along a queue, which must not be changed meanwhile: id, number.
local function in_order(key)
  local at, part, i = 0, {}, 1
  return function()
    if i > #part then
      part, i, at = call('ZRANGE', key, at, at + 63, 'WITHSCORES'), 1, at + 64
    end
    i = i + 2
    return part[i - 2], tonumber(part[i - 1])
  end
end

-- Walks along those that hold, which must not be changed meanwhile: id, number.
-- WAIT has the same order, so it says whom to leave out.
local function holders()
  local left, next, next_waiter = tickets - waiting, in_order(ORDER), in_order(WAIT)
  local waiter = next_waiter()
  return function()
    local id, number = next()
    while id and id == waiter do
      waiter = next_waiter()
      id, number = next()
    end
    left = left - 1
    if left >= 0 then return id, number end
  end
end

local WHOLE = {[0] = {FIRST, LAST, 0}, [1] = {FIRST, LAST, 1}}

-- Reads it.  `who` has L: 'free', 'ours' (a ticket holds), 'delay' or 'foreign'.
-- `top`: the largest number that was granted out of order, which later ones exceed.
-- `broken`: some of the side keys were deleted, or evicted, and others were not.
local function look()
  value = not sequence and redis.pcall('GET', L)
  if type(value) == 'table' and not value.err:find('WRONGTYPE', 1, true) then error(value.err) end
  tickets = call('ZCARD', ORDER)
  waiting = tickets > 0 and call('ZCARD', WAIT) or 0
  local marks = tickets > 0 and call('HMGET', INFO, 'odd', 'top') or {}
  odd, top = marks[1] == '1' and not sequence, tonumber(marks[2] or 0)
  if tickets > 0 then
    broken = call('ZCARD', TERM) ~= tickets or waiting > tickets
  else
    broken = call('EXISTS', TERM, WAIT, INFO) > 0
  end
  if sequence then
    who = 'ours'
  elseif not value then
    who = 'free'
  elseif value == DELAY then
    who = 'delay'
  elseif value == SHARED then
    who = tickets > waiting and 'ours' or 'foreign'
  elseif type(value) == 'string' and tickets > 0 and call('ZSCORE', ORDER, value) then
    who = 'ours'
  else
    who = 'foreign'
  end
end

local function next_number()
  local last = tonumber(call('GET', FENCE) or 0)
  local number = math.max(last + 1, now_us)
  call('SET', FENCE, number_text(number), 'PX', FENCE_KEPT)
  return number
end

-- Of a ticket, or ('') of a foreign holder: kind, mode, number, age, time left,
-- ttl, meta, ticket, start, end, mount.
local function describe(id, first, last, mode)
  local t = id ~= '' and load(id)
  if not t then return {1, 0, '0', -1, call('PTTL', L), -1, '', '', FIRST, LAST, ''} end
  local s = t.s or WHOLE[t.x]
  return {
    t.k, mode or t.x, call('ZSCORE', ORDER, id) or '0', now - t.a, (call('ZSCORE', TERM, id) or now) - now, t.l, t.i,
    id, first or s[1], last or s[2], t.m,
  }
end
