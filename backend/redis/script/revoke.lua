-- revoke: ends holders, whoever they are.
--
-- leaf, mount, request: its number; keep: ms for which it may come again; fence, or ends: those to which `look` has told
-- that they hold, so that a call that comes late ends nobody who came after that; word: the number of a word of the meta, which must be text;
-- keeps: it ends no guards
-- KEYS, the last: ENDED, a hash: mount request -> what it has ended.  Whose answer was lost asks again, and must neither be
-- refused for what it has done itself, and must not end a later holder.  12..16: ORDER, TERM, INFO, WAIT, FENCE of the directory's
-- queue, where the leaf may be one of its names
-- → {'ok', how many other mounts will say that they have heard, tickets of this mount that ended…}
--   | of look: {'ok', tickets that hold, or a digest of what another client has written there…}
--   | 'stale' | 'missing' | 'directory' | 'busy': not all that would end are so
local ENDED = table.remove(KEYS)
local ENDS_MAX = 60000 -- a count of them has 16 bits
local request = a.mount .. ' ' .. a.request
local only

local function answer(mine, others)
  local result = {'ok', 0, unpack(mine)}
  for _, other in ipairs(others) do result[2] = result[2] + call('PUBLISH', other, 's ' .. request) end
  return result
end

local function matches(t)
  local at = 0
  for text in t.i:gmatch('%S+') do
    at = at + 1
    if at == a.word then return text == a.text end
  end
  return not a.word
end

-- A guard is the ticket that a holder leaves behind that has one: no mount's, so nobody renews, releases or changes it,
-- and nobody gets a message when it ends.  Its id is that of the holder, but for the first letter.
local GUARD_WORD, GUARD_UNIT, GUARD_MAX = 8, 4, 60000 -- backend.h
local NOBODY = 'lfs:guard'

local function is_guard(t) return t.m == NOBODY end

local function guard_of(t)
  local sum, at = 0, 0
  for text in t.i:gmatch('%S+') do
    at = at + 1
    if at == GUARD_WORD then sum = tonumber(text:match('^%d+$')) or 0 end
  end
  return math.min(math.floor(sum / GUARD_UNIT), GUARD_MAX)
end

-- In place of the holder `id`; a lock-delay runs from its end on, if one would run from now.
local function guard(id, t, left, delay)
  local number, content = call('ZSCORE', ORDER, id), call('HGET', INFO, 'c:' .. id)
  local deadline = math.min(tonumber(call('ZSCORE', TERM, id) or 0), now + left)
  drop(id, t)
  id = 'g' .. id:sub(2)
  t.m, t.p, t.h, t.u, t.d = NOBODY, nil, nil, nil, delay
  tickets = tickets + 1
  call('ZADD', ORDER, number, id)
  call('ZADD', TERM, number_text(deadline), id)
  call('ZADD', LIST, '0', t.n or leaf)
  if t.n then call('HSET', INFO, 's:' .. t.n, id) end
  if content then call('HSET', INFO, 'c:' .. id, content) end
  save(id, t)
  if partial(t) and not pairwise then set_pairwise() end
  hold(id, t, deadline)
end

-- Ends one; returns for how long the lock-delay keeps what it held refused.
local function end_ticket(id, t)
  local left = not is_guard(t) and t.k ~= 0 and not waits(id) and guard_of(t) or 0
  if left > 0 then
    tell(t, 'e', id, a.fence and ' released' or ' broken')
    guard(id, t, left, a.fence and 0 or t.d)
    return 0
  elseif is_guard(t) or not a.fence then
    return lose(id, t, 'broken', now)
  end
  drop(id, t)
  tell(t, 'e', id, ' released')
  return 0
end

local function digest() return redis.sha1hex(value) end

local done = call('HGET', ENDED, request)
if done then return answer(unpack(cmsgpack.unpack(done))) end
if call('EXISTS', SELF) == 1 then return 'directory' end
if KEYS[12] then
  only = call('HGET', KEYS[14], 's:' .. leaf)
  if only then
    sequence = true
    ORDER, TERM, INFO, WAIT, FENCE = unpack(KEYS, 12, 16)
  end
end
call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
expire()
local found, held, delay, guards = false, false, 0, true
local denied = a.word and who == 'foreign' and not a.fence
local mine, others, notified = {}, {}, {}
local ends, meant = {}, {}
for _, id in ipairs(a.ends or {}) do meant[id] = true end
local function consider(id, at)
  held = true
  local t = (a.look or at == a.fence or meant[id]) and load(id)
  if t then
    ends[#ends + 1] = {id, t}
    denied = denied or not is_guard(t) and not matches(t)
    guards = guards and is_guard(t)
  end
end
if only then
  local at = call('ZSCORE', ORDER, only)
  if at then consider(only, at) end
else
  for id, at in holders() do consider(id, number_text(at)) end
end
if a.look then
  local found = {'ok'}
  for i, e in ipairs(ends) do found[i + 1] = e[1] end
  if #ends == 0 and who == 'foreign' then found[2] = digest() end
  grant()
  finish()
  if #ends > ENDS_MAX then return refuse('too many hold the lock') end
  return found[2] and found or 'missing'
end
denied = denied or #ends > 0 and guards and a.keeps
for _, e in ipairs(denied and {} or ends) do
  local id, t = unpack(e)
  if t.m == a.mount then
    mine[#mine + 1] = id
  elseif not is_guard(t) and not notified[t.m] then
    notified[t.m] = true
    others[#others + 1] = t.m
  end
  if not is_guard(t) or guards then -- guards end when there is nothing else
    found = true
    delay = math.max(delay, end_ticket(id, t))
  end
end
if found then
  vacate(delay)
  tell_delay(tickets > waiting and 1 or delay) -- a guard ends earlier than the term that the first waiter knows of
elseif who == 'foreign' and not denied and meant[digest()] then
  call('DEL', L)
  who, value = 'free', false
end
grant()
finish()
if denied then return 'busy' end
if a.fence and not found then return (held or who == 'foreign') and 'stale' or 'missing' end
call('HSET', ENDED, request, cmsgpack.pack({mine, others}))
call('PEXPIRE', ENDED, a.keep)
return answer(mine, others)
