-- acquire: takes the lock, or a place in its queue.  Repeating it does no harm:
-- a ticket that is there is renewed.
--
-- leaf, sequence, ticket, mount, kind, mode, ttl, liveness, meta; needed: the directory must exist; path of the lock or
-- of the sequence's directory; number of one that queued before; handle; owner: the lock owner, with start and finish
-- of its range; wait; shares_identity: the mount has another ticket with its identity; content; test: only find what is in
-- the way; next: what the mount knows of
-- the sequence's next number
-- KEYS 12: the key of a lock of the directory's name; 13..15: ORDER, TERM, INFO of the directory's queue, where
--       the leaf may be one of its names
-- → {'granted', ticket, number, segments, name} | {'queued', number, rank, wait ms, foreign, name}
--   | {'busy', describe…} | {'free'} | {'missing'} | {'notdirectory'} | {'directory'}
--   | {'deadlock'}: it and one that waits would wait for each other
--   | {'grace'}: nobody holds it, but nothing is granted while the store is closed
local NAMES_MAX = 1000 -- taken ones that a sequence passes over in one call

local function queued(at, name)
  local left = sequence and remaining() or time_left()
  return {'queued', number_text(at), call('ZRANK', WAIT, id) or 0, left, who == 'foreign' and 1 or 0, name or ''}
end

-- What a lock owner holds is one ticket: the one that holds already, if any, and it.
local function merge(t)
  local absorb = t.p and call('HGET', INFO, owner_key(t.m, t.p))
  local into = absorb and absorb ~= id and not waits(absorb) and load(absorb)
  if not into or not into.c or into.p ~= t.p or into.m ~= t.m then return id, t end
  into.s = into.s or WHOLE[into.x]
  remember_undone(into, id, a.start, a.finish)
  into.s = replace(into.s, a.start, a.finish, a.mode)
  if #into.s > 3 * SEGMENTS_MAX then return nil end
  set_mode(into)
  forget_looks()
  return absorb, into
end

local function granted(holder, t)
  if not holder then
    grant()
    finish()
    return refuse('too many byte ranges of one process')
  end
  local deadline = now + a.ttl
  call('ZADD', TERM, number_text(deadline), holder)
  if partial(t) and not pairwise then set_pairwise() end
  t.l, t.c = a.ttl, 1
  save(holder, t)
  hold(holder, t, deadline)
  grant()
  finish()
  return {'granted', holder, call('ZSCORE', ORDER, holder), t.s and table.concat(t.s, ' ') or '', t.n or ''}
end

-- It lives, and waits: until when it counts as that.
local function keep_waiting()
  call('ZADD', TERM, number_text(now + a.liveness), id)
  call('ZADD', WAITERS, number_text(now + a.liveness), id)
  call('PEXPIRE', WAITERS, number_text(math.max(a.liveness + KEPT, call('PTTL', WAITERS))))
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

-- Of those that hold and exclude `t` the one with the lowest range: as `find_blocker` tells it.
local function find_lowest_blocker(t)
  local lowest = {}
  for other in holders() do
    local u = load(other)
    local from, to, mode
    if u then from, to, mode = conflict(u, t) end
    if from and (not lowest[2] or from < lowest[2]) then lowest = {other, from, to, mode} end
  end
  return unpack(lowest)
end

-- Of two that share, and wait to become exclusive, each would wait for the other.
local function has_rival(t)
  local held = {}
  for other in holders() do held[#held + 1] = load(other) end
  local function family(u)
    local found = {}
    for _, k in ipairs(held) do
      if has_same_identity(k, u) then found[#found + 1] = k end
    end
    return found
  end
  local own = family(t)
  for other in in_order(WAIT) do
    local u = load(other)
    if u and waits_for(u, own) and waits_for(t, family(u)) then return true end
  end
  return false
end

-- A server that has forgotten does not know which numbers were given: then they go on from the time, in seconds, or from
-- what the mount knows.
local function next_of_sequence()
  local known, of = unpack(call('HMGET', DIR, 'sequence', 'of'))
  local next = tonumber(known or 0)
  if state == 'f' then return next end
  if of ~= version then
    next = math.max(next, math.floor(now / 1000))
    call('HSET', DIR, 'of', version)
  end
  return math.max(next, a.next or 0)
end

local function new_name(prefix)
  local next = next_of_sequence()
  local name, taken
  for _ = 1, NAMES_MAX do
    name = prefix .. string.format('%010.0f', next)
    next = next + 1
    taken = call('ZSCORE', LIST, name)
    if not taken then break end
  end
  call('HSET', DIR, 'sequence', number_text(next))
  return not taken and name
end

if a.needed and call('EXISTS', DIR) == 0 then
  return {redis.pcall('EXISTS', KEYS[12]) == 1 and 'notdirectory' or 'missing'}
end
if not sequence and call('EXISTS', SELF) == 1 then return {'directory'} end
expire()
local t = tickets > 0 and call('ZSCORE', ORDER, id) and load(id)
if t and closed and not waits(id) then -- the server may have given it since to one that it has forgotten
  if drop(id, t) then vacate(0) end
  t = nil
end
if t and not is_of(t) then
  finish()
  return {'busy', unpack(describe(id))}
end
if t then return again(t) end

local of_sequence = KEYS[13] and call('HGET', KEYS[15], 's:' .. leaf)
if of_sequence then
  if tickets > 0 then finish() end
  ORDER, TERM, INFO = KEYS[13], KEYS[14], KEYS[15]
  return {'busy', unpack(describe(of_sequence))}
end

grant()
t = record(a)
t.a, t.d, t.s = now, tonumber(call('HGET', DIR, 'delay') or 0), a.owner and {a.start, a.finish, a.mode}
local number, independent = a.number, not a.shares_identity and not a.number
if tickets > 0 and (a.shares_identity or not pairwise and partial(t)) then set_pairwise(a.shares_identity) end
local blocker, first, last, how = find_blocker(t, number, independent and not a.test)
if closed and blocker == '' and who ~= 'foreign' and who ~= 'delay' and (a.test or not a.wait) then
  finish()
  return {'grace'}
end
if a.test then
  if pairwise and blocker and blocker ~= '' and not waits(blocker) then
    blocker, first, last, how = find_lowest_blocker(t)
  end
  finish()
  return blocker and {'busy', unpack(describe(blocker, first, last, how))} or {'free'}
end
if blocker and not a.wait then
  local holder = describe(blocker, first, last, how)
  finish()
  return {'busy', unpack(holder)}
end

if blocker and a.shares_identity and not number and has_rival(t) then
  finish()
  return {'deadlock'}
end

if number then
  t.o = 1
else
  number = next_number()
end
if sequence then
  if not t.o then
    t.n = new_name(leaf)
  elseif call('HEXISTS', INFO, 's:' .. leaf) == 0 then
    t.n = leaf -- given before its queue was lost
    raise_sequence(leaf)
  else
    t.n = new_name(leaf:sub(1, -11))
  end
  if not t.n then
    finish()
    return refuse('too many names of the sequence are taken')
  end
  call('HSET', INFO, 's:' .. t.n, id)
end
call('ZADD', LIST, '0', t.n or leaf)
if a.content then call('HSET', INFO, 'c:' .. id, a.content) end
remember(id, t)
if not blocker then
  local holder, merged = merge(t)
  if holder ~= id then
    call('HDEL', INFO, 'c:' .. id)
    forget(id, t)
  else
    tickets = tickets + 1
    call('ZADD', ORDER, number_text(number), id)
    granted_number(id, t, number)
    seen_to_hold(id, t, independent)
  end
  return granted(holder, merged)
end
if t.o then forget_looks() end -- it does not stand behind all others
call('ZREMRANGEBYSCORE', WAITERS, '-inf', number_text(now)) -- first: if it is of the wrong type, nothing has changed
tickets, waiting = tickets + 1, waiting + 1
call('ZADD', ORDER, number_text(number), id)
call('ZADD', WAIT, number_text(number), id)
keep_waiting()
save(id, t)
if partial(t) and not pairwise then set_pairwise() end
local wanted = blocker ~= '' and load(blocker)
if wanted then tell(wanted, 'w', blocker) end
finish()
return queued(number, t.n)
