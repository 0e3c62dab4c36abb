-- acquire: takes the lock, or a place in its queue.  Repeating it does no harm:
-- a ticket that is there is renewed.
--
-- ARGV (acquire_free.lua, which stands before it, has read them):
--       leaf, sequence, directory must exist (1/0), ticket, mount, kind, mode, handle, party, start, end, ttl,
--       wait (1/0), number (of one that queued before; 0), odd (1/0), liveness, meta, content, test (1: only what
--       stands in the way), identity of the mount ('': none), name of the lock or of the sequence's directory
-- KEYS 11: the key of a lock of the directory's name; 12..14: ORDER, TERM, INFO of the directory's queue, where
--       the leaf may be one of its names
-- → {'granted', ticket, number, segments, name} | {'queued', number, rank, wait ms, foreign, name}
--   | {'busy', describe…} | {'free'} | {'missing'} | {'notdirectory'} | {'directory'}
local function queued(at, name)
  local left = sequence and remaining() or call('PTTL', L)
  return {'queued', number_text(at), call('ZRANK', WAIT, id) or 0, left, who == 'foreign' and 1 or 0, name or ''}
end

-- What a party holds is one ticket: the one that holds already, if any, and it.
local function merge(t)
  local absorb, into
  for _, other in ipairs(t.p and odd and call('ZRANGE', ORDER, 0, -1) or {}) do
    local u = other ~= id and not waits(other) and load(other)
    if u and u.c and u.p == t.p and u.m == t.m then absorb, into = other, u end
  end
  if not into then return id, t end
  into.s = replace(into.s or WHOLE[into.x], start, finish_at, mode)
  into.x = 1
  for i = 3, #into.s, 3 do if into.s[i] == 0 then into.x = 0 end end
  return absorb, into
end

local function granted(holder, t)
  local deadline = now + ttl
  call('ZADD', TERM, number_text(deadline), holder)
  if partial(t) and not odd then set_odd() end
  t.l, t.c = ttl, 1
  save(holder, t)
  hold(holder, t, deadline)
  grant()
  finish()
  return {'granted', holder, call('ZSCORE', ORDER, holder), t.s and table.concat(t.s, ' ') or '', t.n or ''}
end

-- It lives, and waits: until when it counts as that.
local function keep_waiting()
  call('ZADD', TERM, number_text(now + liveness), id)
  call('ZADD', WAITERS, number_text(now + liveness), id)
  call('PEXPIRE', WAITERS, number_text(math.max(liveness + KEPT, call('PTTL', WAITERS))))
end

-- One that is here already: a claim after the hand-over, a refresh, a repetition.
local function again(t)
  local at = tonumber(call('ZSCORE', ORDER, id))
  call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
  if not t.g and not t.c and not waits(id) then wait_again() end
  if waits(id) then
    keep_waiting()
    grant()
    finish()
    if waits(id) then return queued(at, t.n) end
    t = load(id)
  end
  local holder, merged = merge(t)
  if holder ~= id then drop(id, t) end
  return granted(holder, merged)
end

-- Of those that hold and exclude `t` the one with the lowest range: as `obstacle` tells it.
local function lowest_obstacle(t)
  local lowest = {}
  for _, other in ipairs(call('ZRANGE', ORDER, 0, -1)) do
    local u = not waits(other) and load(other)
    local from, to, mode
    if u then from, to, mode = conflict(u, t) end
    if from and (not lowest[2] or from < lowest[2]) then lowest = {other, from, to, mode} end
  end
  return unpack(lowest)
end

local function new_name(prefix)
  local next = tonumber(call('HGET', DIR, 'sequence') or 0)
  local name
  repeat
    name = prefix .. string.format('%010.0f', next)
    next = next + 1
  until not call('ZSCORE', LIST, name)
  call('HSET', DIR, 'sequence', number_text(next))
  return name
end

expire()
local t = tickets > 0 and call('ZSCORE', ORDER, id) and load(id)
if t then return again(t) end

local of_sequence = KEYS[12] and call('HGET', KEYS[14], 's:' .. leaf)
if of_sequence then
  ORDER, TERM, INFO = KEYS[12], KEYS[13], KEYS[14]
  return {'busy', unpack(describe(of_sequence))}
end

grant()
t = {
  m = mount, k = kind, x = mode, h = handle ~= '' and handle or nil, p = party ~= '' and party or nil, l = ttl, a = now,
  d = tonumber(call('HGET', DIR, 'delay') or 0), i = meta, s = party ~= '' and {start, finish_at, mode} or nil,
  b = identity ~= '' and identity or nil, f = identity ~= '' and path or nil,
}
if tickets > 0 and not odd and (is_odd == '1' or partial(t)) then set_odd() end
local blocker, first, last, how = obstacle(t, number > 0 and number or nil)
if test == '1' then
  if odd and blocker and blocker ~= '' and not waits(blocker) then blocker, first, last, how = lowest_obstacle(t) end
  finish()
  return blocker and {'busy', unpack(describe(blocker, first, last, how))} or {'free'}
end
if blocker and wait == '0' then
  local holder = describe(blocker, first, last, how)
  finish()
  return {'busy', unpack(holder)}
end

if number > 0 then
  t.o = 1
else
  number = next_number()
end
if sequence then
  if not t.o then
    t.n = new_name(leaf)
  elseif call('HEXISTS', INFO, 's:' .. leaf) == 0 then
    t.n = leaf -- given before its queue was lost
  else
    t.n = new_name(leaf:sub(1, -11))
  end
  call('HSET', INFO, 's:' .. t.n, id)
end
call('ZADD', LIST, 0, t.n or leaf)
if content ~= '' then call('HSET', INFO, 'c:' .. id, content) end
remember(id, t)
if not blocker then
  local holder, merged = merge(t)
  if holder ~= id then
    call('HDEL', INFO, 'c:' .. id)
  else
    tickets = tickets + 1
    call('ZADD', ORDER, number_text(number), id)
    granted_number(id, t, number)
  end
  return granted(holder, merged)
end
tickets, waiting = tickets + 1, waiting + 1
call('ZADD', ORDER, number_text(number), id)
call('ZADD', WAIT, number_text(number), id)
call('ZREMRANGEBYSCORE', WAITERS, '-inf', number_text(now))
keep_waiting()
save(id, t)
if partial(t) and not odd then set_odd() end
local wanted = blocker ~= '' and load(blocker)
if wanted then tell(wanted, 'w', blocker) end
finish()
return queued(number, t.n)
