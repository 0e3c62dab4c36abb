-- look: how a lock is read.

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

local value, uncontended, who, tickets, waiting, pairwise, top, broken -- see look
local uncontended_head, uncontended_claim -- of L: what stands before what was asked for, and that

-- A mount that starts again finds its locks by these notes: redis_note makes the same.  t.f is the path.  A handle lock's
-- note has the pid of its holder, for the log of a mount that finds the lock gone.  Notes of locks that another mount has
-- ended stay until then.
local function in_mine(id, t)
  if t.k == 1 then return id .. (sequence and ' s ' or ' l ') .. t.f end
  return id .. (sequence and ' q' or ' h') .. (t.i and t.i:match('^%S+ (%d+)') or '') .. ' ' .. t.f
end

local function remember(id, t)
  if t.k == 0 then return end -- it ends with its daemon
  call('SADD', MINE, in_mine(id, t))
  call('PEXPIRE', MINE, FENCE_KEPT)
end

local function forget(id, t)
  if t.k ~= 0 then redis.pcall('SREM', MINE, in_mine(id, t)) end
end

-- With another meta.
local function set_meta(id, t, meta)
  local noted = {k = t.k, i = t.i, f = t.f}
  t.i = meta
  if in_mine(id, noted) ~= in_mine(id, t) then
    forget(id, noted)
    remember(id, t)
  end
end

-- A mount that starts again takes over what the start before had: then that one has nothing to say of it any more.
local function is_of(t) return t.m == a.mount end

local function load(id)
  local packed = call('HGET', INFO, id)
  return packed and cmsgpack.unpack(packed)
end

local function record(a)
  return {m = a.mount, k = a.kind, x = a.mode, h = a.handle, p = a.owner, l = a.ttl, i = a.meta, f = a.path}
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
-- `uncontended`: the record, where L has it; nothing else is known then.
local function look()
  value = not sequence and redis.pcall('GET', L)
  if type(value) == 'table' and not value.err:find('WRONGTYPE', 1, true) then error(value.err) end
  local text = type(value) == 'string' and value:sub(1, #UNCONTENDED) == UNCONTENDED and value or ''
  local number, us, delay, at = text:match('^(%d+) (%d+) (%d+) ()', #UNCONTENDED + 33)
  uncontended_claim = at and cmsgpack.unpack(text:sub(at))
  if type(uncontended_claim) == 'table' then
    uncontended_head, uncontended = value:sub(1, at - 1), record(uncontended_claim)
    uncontended.id, uncontended.z, uncontended.y, uncontended.c = value:sub(#UNCONTENDED + 1, #UNCONTENDED + 32), number, uncontended_claim.content, 1
    uncontended.a, uncontended.d = math.floor(us / 1000), tonumber(delay)
    return
  end
  uncontended = nil
  tickets = call('ZCARD', ORDER)
  waiting = tickets > 0 and call('ZCARD', WAIT) or 0
  local marks = tickets > 0 and call('HMGET', INFO, 'pairwise', 'top') or {}
  pairwise, top = marks[1] == '1' and not sequence, tonumber(marks[2] or 0)
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

-- How long it still holds; the lock-delay is behind that.
local function uncontended_left()
  local left = call('PTTL', L)
  return left < 0 and uncontended.l or left - uncontended.d
end

-- Whether this ticket is it: one whose term is over only keeps others off.
local function is_uncontended(id) return uncontended and uncontended.id == id and (uncontended.d == 0 or uncontended_left() > 0) end

local function keep_uncontended(left)
  local t = uncontended_claim
  t.mount, t.kind, t.handle, t.ttl, t.meta, t.content = uncontended.m, uncontended.k, uncontended.h, uncontended.l, uncontended.i, uncontended.y
  call('SET', L, uncontended_head .. pack_claim(t), 'PX', number_text(math.max(left + uncontended.d, 1)))
end

local function next_number()
  local number = math.max(last_number() + 1, now_us)
  set_number(number_text(number))
  return number
end

-- Of a ticket, or ('') of a foreign holder: kind, mode, number, age, time left, ttl, meta, ticket, start, end, mount.
local function describe(id, first, last, mode)
  local t = id ~= '' and load(id)
  if not t then return {1, 0, '0', -1, call('PTTL', L), -1, '', '', FIRST, LAST, ''} end
  local s = t.s or WHOLE[t.x]
  return {
    t.k, mode or t.x, call('ZSCORE', ORDER, id) or '0', now - t.a, (call('ZSCORE', TERM, id) or now) - now, t.l, t.i,
    id, first or s[1], last or s[2], t.m,
  }
end
