-- common: the rule that grants, and what changes a lock.  Stands between
-- head.lua and a script that changes one.

local BUDGET = 64         -- what one call does for those that wait: 1 to look at one, more to let it hold
local GIVE = 4
local DEAD_MAX = 512      -- tickets past their deadline that one call ends
local SEGMENTS_MAX = 1000 -- byte ranges of a lock owner

local orphaned -- the first of those that wait has left without a grant, and the next does not know that it is the first

-- Where in INFO the ticket with which a lock owner holds is noted.
local function owner_key(mount, owner) return 'p:' .. mount .. ' ' .. owner end

local function save(id, t)
  if t.p and t.c then
    call('HSET', INFO, id, cmsgpack.pack(t), owner_key(t.m, t.p), id)
  else
    call('HSET', INFO, id, cmsgpack.pack(t))
  end
end

-- The notes about covered ranges are out of date: see look_at.
local function forget_looks()
  if pairwise then call('HDEL', INFO, 'looked') end
end

-- While the store is closed its mount knows better than the server whether a ticket has run out.
local function tell(t, what, id, more)
  if closed and (more == ' expired' or more == ' lost') then return end
  call('PUBLISH', t.m, what .. ' ' .. id .. (more or ''))
end

-- That number was given.
local function raise_sequence(name)
  local next = tonumber(name:sub(-10)) + 1
  if tonumber(call('HGET', DIR, 'sequence') or 0) < next then call('HSET', DIR, 'sequence', number_text(next)) end
end

-- --- segments: byte ranges, a flat list start, end, mode, … in order ---

local function step(hex, by)
  local high, low = tonumber(hex:sub(1, 8), 16), tonumber(hex:sub(9), 16) + by
  if low < 0 then high, low = high - 1, 4294967295 end
  if low > 4294967295 then high, low = high + 1, 0 end
  return string.format('%08x%08x', high, low)
end

-- Without first..last; then, with a mode, first..last added, neighbours joined.
local function replace(segments, first, last, mode)
  local parts = {}
  for i = 1, #segments, 3 do
    local a, b, m = segments[i], segments[i + 1], segments[i + 2]
    if b < first or a > last then
      parts[#parts + 1] = {a, b, m}
    else
      if a < first then parts[#parts + 1] = {a, step(first, -1), m} end
      if b > last then parts[#parts + 1] = {step(last, 1), b, m} end
    end
  end
  if mode then parts[#parts + 1] = {first, last, mode} end
  table.sort(parts, function(x, y) return x[1] < y[1] end)
  local joined = {}
  for _, part in ipairs(parts) do
    local n = #joined
    if n > 0 and joined[n] == part[3] and joined[n - 1] ~= LAST and step(joined[n - 1], 1) == part[1] then
      joined[n - 1] = part[2]
    else
      joined[n + 1], joined[n + 2], joined[n + 3] = part[1], part[2], part[3]
    end
  end
  return joined
end

-- A ticket with ranges is exclusive if one of them is.
local function set_mode(t)
  t.x = 1
  for i = 3, #t.s, 3 do if t.s[i] == 0 then t.x = 0 end end
end

-- What a lock owner's ticket was before it took in others is kept for the last few of those, so
-- that one whose user was not told of it can be given back alone: t.u is a list of
-- {ticket, the ranges that it got, what was there before}, both as segments.
local UNDO_MAX = 4

-- The ranges were asked for again, or given back, by one that knows what it did.
local function forget_undone(t, first, last)
  for _, u in ipairs(t.u or {}) do
    u[2], u[3] = replace(u[2], first, last, nil), replace(u[3], first, last, nil)
  end
end

local function remember_undone(t, id, first, last)
  local before = {}
  for i = 1, #t.s, 3 do
    local a, b = t.s[i], t.s[i + 1]
    if a <= last and first <= b then
      local n = #before
      before[n + 1], before[n + 2], before[n + 3] = a < first and first or a, b > last and last or b, t.s[i + 2]
    end
  end
  for _, u in ipairs(t.u or {}) do
    if u[1] == id then return end -- a repetition
  end
  forget_undone(t, first, last)
  t.u = t.u or {}
  if #t.u == UNDO_MAX then table.remove(t.u, 1) end
  t.u[#t.u + 1] = {id, {first, last, 0}, before}
end

-- Ends a script whose caller wants too much.
local function refuse(what) return redis.error_reply('ERR leasefs: ' .. what) end

local function partial(t) return t.s and not (#t.s == 3 and t.s[1] == FIRST and t.s[2] == LAST) end

-- Of one lock owner or, if not of two, of one handle: of what a lock owner has by several, the first.
local function has_same_identity(t, u)
  if t.m ~= u.m then return false end
  if t.p and u.p then return t.p == u.p end
  return t.h and t.h == u.h
end

-- What of `t` excludes `u`: start, end, mode; or nil.
local function conflict(t, u)
  if has_same_identity(t, u) then return nil end
  local a, b = t.s or WHOLE[t.x], u.s or WHOLE[u.x]
  for i = 1, #a, 3 do
    for j = 1, #b, 3 do
      if a[i] <= b[j + 1] and b[j] <= a[i + 1] and (a[i + 2] == 0 or b[j + 2] == 0) then
        return a[i], a[i + 1], a[i + 2]
      end
    end
  end
  return nil
end

-- --- the state of the lock ---

-- ms until L ends; -1: never.  0 if it has ended since this script looked: then the waiter asks again at once.
local function time_left()
  local left = call('PTTL', L)
  return left == -2 and 0 or left
end

-- ms until L may change by itself; at least 0.
local function remaining()
  if sequence then
    local next = call('ZRANGE', TERM, 0, 0, 'WITHSCORES')
    return next[2] and math.max(next[2] - now, 0) or 0
  end
  return math.max(call('PTTL', L), 0)
end

-- Writes L for a ticket that holds until `deadline`: it lasts as long as the
-- longest of those that hold.
local function hold(id, t, deadline)
  if sequence then
    if t.x == 0 then call('HDEL', INFO, 'readers') end
    return
  end
  local px = deadline - now + t.d
  if t.x == 0 and not partial(t) and tickets - waiting == 1 then
    value = id
  else
    if tickets - waiting > 1 and who == 'ours' then px = math.max(px, remaining()) end
    value = SHARED
  end
  who = 'ours'
  call('SET', L, value, 'PX', number_text(px))
end

-- Takes a ticket out.  The first write is one that a full server permits.
-- True if it held.
local function drop(id, t)
  call('ZREM', ORDER, id)
  call('ZREM', TERM, id)
  tickets = tickets - 1
  orphaned = orphaned or waiting > 1 and call('ZRANK', WAIT, id) == 0
  local waited = waiting > 0 and call('ZREM', WAIT, id) == 1
  if waited then
    waiting = waiting - 1
    call('ZREM', WAITERS, id)
  end
  call('HDEL', INFO, id, 'c:' .. id)
  if t and t.p and t.c then call('HDEL', INFO, owner_key(t.m, t.p)) end
  forget_looks()
  if t then forget(id, t) end
  if t and t.n then
    call('HDEL', INFO, 's:' .. t.n)
    call('ZREM', LIST, t.n)
  end
  return not waited
end

-- Ends a holder against its will; returns for how long the lock-delay keeps
-- what it held refused.  In a sequence a nameless ticket keeps the place.
local function lose(id, t, why, since)
  local delay = t.k ~= 0 and t.d or 0
  local number = sequence and delay > 0 and not waits(id) and call('ZSCORE', ORDER, id)
  drop(id, t)
  tell(t, 'e', id, ' ' .. why)
  if number and t.n then
    tickets = tickets + 1
    call('ZADD', ORDER, number, id)
    call('ZADD', TERM, number_text(since + delay), id)
    t.n = nil
    save(id, t)
  end
  return since + delay - now
end

-- After holders were dropped: if none is left, L is let go, or refused for
-- `delay` ms more.
local function vacate(delay)
  if sequence or tickets > waiting or who ~= 'ours' then return end
  if delay > 0 then
    call('SET', L, DELAY, 'PX', number_text(delay))
    who, value = 'delay', DELAY
  else
    call('DEL', L)
    who, value = 'free', false
  end
end

local function tell_first_to_ask()
  local id = waiting > 0 and call('ZRANGE', WAIT, 0, 0)[1]
  local t = id and load(id)
  if t then tell(t, 'a', id) end
end

-- A lock-delay that begins before the deadline which the first waiter knows of
-- may end before it, too.
local function tell_delay(delay)
  if delay > 0 then tell_first_to_ask() end
end

-- The directory has another lock-delay, which is that of all that hold and wait: L lasts for it, too.
local function heed_delay(delay)
  local changed, last = {}, 0
  for id in in_order(ORDER) do
    local t = load(id)
    if t and t.d ~= delay then changed[id] = t end
  end
  if not next(changed) then return end
  for id, t in pairs(changed) do
    t.d = delay
    save(id, t)
  end
  if sequence or who ~= 'ours' then return end
  for id in holders() do last = math.max(last, tonumber(call('ZSCORE', TERM, id) or 0)) end
  call('PEXPIRE', L, number_text(math.max(last - now + delay, 1)))
  tell_delay(1)
end

-- Where side keys are gone, who held is lost: L, if it is there, runs out as
-- another client's would.  Waiters ask again.
local function lose_all()
  for _, id in ipairs(call('ZRANGE', tickets > 0 and ORDER or TERM, 0, -1)) do
    local t = load(id)
    if t then
      forget(id, t)
      tell(t, 'e', id, ' lost')
    end
  end
  call('DEL', ORDER, TERM, WAIT, INFO)
  look()
end

-- Puts those that wait back into WAIT, where it was deleted: it is seen by a lock
-- with one exclusive holder, and by the ticket that asks again.
local function wait_again()
  for id, number in in_order(ORDER) do
    local t = load(id)
    if t and not t.g and not t.c and not waits(id) then
      call('ZADD', WAIT, number_text(number), id)
      waiting = waiting + 1
    end
  end
  forget_looks()
end

-- Gives one that holds alone the side keys by which it is compared with others.
local function unfold()
  local left, left_of_key, t = uncontended_left(), call('PTTL', L), uncontended
  local number, content = t.z, t.y
  value = t.id
  t.id, t.z, t.y = nil, nil, nil
  call('DEL', ORDER, TERM, WAIT, INFO) -- a write that a full server permits, before those it would refuse
  call('ZADD', ORDER, number, value)
  call('ZADD', TERM, number_text(now + left), value)
  call('HSET', INFO, value, cmsgpack.pack(t))
  if content then call('HSET', INFO, 'c:' .. value, content) end
  set_number(number)
  call('SET', L, value, 'PX', number_text(left_of_key < 0 and t.l + t.d or math.max(left_of_key, 1)))
  look()
end

-- Ends what is past its deadline, and holders that L does not know any more.  Of
-- very many it ends a part: the others are refused until a later call has ended them.  `looked`: look has just been called.
local function expire(looked)
  orphaned = false
  if not looked then look() end
  if uncontended then unfold() end
  if broken then lose_all() end
  if tickets == 0 then return end
  if who == 'ours' and not sequence and value ~= SHARED and tickets - waiting > 1 then wait_again() end
  local stale = who ~= 'ours' and tickets > waiting
  local dead = call('ZRANGEBYSCORE', TERM, '-inf', number_text(now), 'WITHSCORES', 'LIMIT', 0, DEAD_MAX)
  local delay, held = 0, false
  for i = 1, #dead, 2 do
    local id, t = dead[i], load(dead[i])
    if not t or waits(id) then
      drop(id, t)
    else
      held = true
      delay = math.max(delay, lose(id, t, 'expired', tonumber(dead[i + 1])))
    end
  end
  if held then vacate(delay) end
  if not stale or tickets == waiting then return end
  local lost = {}
  for id in holders() do
    if #lost == DEAD_MAX then break end
    lost[#lost + 1] = id
  end
  for _, id in ipairs(lost) do
    local t = load(id)
    if t then lose(id, t, 'lost', now) else drop(id) end
  end
  if tickets > waiting and who == 'free' then who = 'delay' end
end

-- --- the rule that grants ---

local function width() return tonumber(call('HGET', DIR, 'width') or 1) end

-- The first exclusive holder of a sequence, and its number.  That there is none
-- is noted until one is let in, so that many readers are not read each time.
local function first_exclusive()
  if tickets == waiting or call('HEXISTS', INFO, 'readers') == 1 then return nil end
  for id, number in holders() do
    local u = load(id)
    if u and u.x == 0 then return id, number end
  end
  call('HSET', INFO, 'readers', 1)
  return nil
end

-- In a sequence, of a ticket that does not hold: all that hold and all that wait
-- before it stand in the way of an exclusive one if they are `width` or more.  In
-- that of a shared one stands who waits before it, an exclusive holder before it,
-- and one behind it if they are that many.  Holders stand behind one that queued
-- again, with its old number, after they were let in.
local function find_sequence_blocker(t, number)
  if tickets == 0 then return nil end
  local before = waiting
  if number and waiting > 0 then before = call('ZCOUNT', WAIT, '-inf', '(' .. number_text(number)) end
  local room = tickets - waiting + before < width()
  if t.x == 0 then return not room and call('ZRANGE', ORDER, 0, 0)[1] or nil end
  if before > 0 then return call('ZRANGE', WAIT, 0, 0)[1] end
  local exclusive, at = first_exclusive()
  return exclusive and (not room or not number or at < number) and exclusive or nil
end

-- Does `u`, which waits, wait for one of these that hold?  For one that has the whole lock all wait in the end: a shared
-- ticket waits for an exclusive one, which waits for it.
local function waits_for(u, family)
  for _, k in ipairs(family) do
    if conflict(k, u) or not partial(k) and not has_same_identity(k, u) then return true end
  end
  return false
end

-- Where tickets are compared one by one.  One that waits for a ticket with the identity of `t`
-- cannot go on before `t` does, so it does not stand in its way.
local function find_pairwise_blocker(t, number)
  local family = {}
  for other in holders() do
    local u = load(other)
    if u then
      local from, to, mode = conflict(u, t)
      if from then return other, from, to, mode end
      if has_same_identity(u, t) then family[#family + 1] = u end
    end
  end
  for other, at in in_order(WAIT) do
    if number and at >= number then break end
    local u = load(other)
    local from, to, mode
    if u then from, to, mode = conflict(u, t) end
    if from and not waits_for(u, family) then return other, from, to, mode end
  end
  return nil
end

-- --- what is covered ---
--
-- So that not each ticket is compared with all, each is looked at once, those that
-- hold and then those that wait, in order, and what it covers is kept in INFO:
--   seen    {by any, by exclusive ones}: lists of {start, end, ticket}, in order and
--           apart, a byte with the first ticket that covers it
--   looked  the number of the last one that waits and was looked at; not there: none,
--           and `seen` is void.  So only who joins behind all others leaves it as it is.
--   identities  1 when tickets have shared an identity: such a ticket is compared with all if it is covered
local seen, seen_of

-- The first of a list that ends at `at` or after it.
local function find(list, at)
  local low, high = 1, #list + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if list[middle][2] < at then low = middle + 1 else high = middle end
  end
  return low
end

local function cover(list, first, last, id)
  local i = find(list, first)
  while first <= last do
    local part = list[i]
    if not part or part[1] > first then
      local stop = (not part or part[1] > last) and last or step(part[1], -1)
      part = {first, stop, id}
      table.insert(list, i, part)
    end
    if part[2] >= last then return end
    first, i = step(part[2], 1), i + 1
  end
end

local function see(id, t)
  local s = t.s or WHOLE[t.x]
  for i = 1, #s, 3 do
    cover(seen[1], s[i], s[i + 1], id)
    if s[i + 2] == 0 then cover(seen[2], s[i], s[i + 1], id) end
  end
end

-- The first ticket, and bytes, that is seen to be in the way of `t`.
local function covered(t)
  local s = t.s or WHOLE[t.x]
  for i = 1, #s, 3 do
    local list = seen[s[i + 2] + 1]
    local part = list[find(list, s[i])]
    if part and part[1] <= s[i + 1] then return part[3], part[1], part[2], s[i + 2] == 1 and 0 or nil end
  end
  return nil
end

local function keep_looks(number) call('HSET', INFO, 'looked', number, 'seen', cmsgpack.pack(seen)) end

local function looks_kept() return call('HGET', INFO, 'looked') end

local function unpack_looks()
  if seen_of ~= INFO then seen, seen_of = cmsgpack.unpack(call('HGET', INFO, 'seen')), INFO end
end

-- Starts over, with those that hold.
local function look_at_holders()
  seen, seen_of = {{}, {}}, INFO
  for id in holders() do
    local u = load(id)
    if u then see(id, u) end
  end
  return '-inf'
end

local function not_looked_at(number, max)
  return waiting > 0 and call('ZRANGEBYSCORE', WAIT, '(' .. number, '+inf', 'WITHSCORES', 'LIMIT', 0, max) or {}
end

-- Whether `seen` tells of everybody.
local function all_seen()
  local number = looks_kept()
  if number then
    unpack_looks()
  elseif waiting == 0 then
    number = look_at_holders()
    keep_looks(number)
  end
  return number and #not_looked_at(number, 1) == 0
end

-- A ticket holds that was not kept waiting.
local function seen_to_hold(id, t, independent)
  local number = independent and pairwise and looks_kept()
  if number then
    unpack_looks()
    see(id, t)
    keep_looks(number)
  else
    forget_looks()
  end
end

-- The blocker of `t`, which has that number, or will be appended: a ticket, '' for another client, or nil.  For an
-- independent one (no other ticket has its identity) that will be appended, `seen` decides if it has all tickets.
local function find_open_blocker(t, number, independent)
  if sequence then return find_sequence_blocker(t, number) end
  if who == 'foreign' or who == 'delay' then return '' end
  if pairwise then
    if independent and all_seen() then return covered(t) end
    return find_pairwise_blocker(t, number)
  end
  if tickets > waiting and (t.x == 0 or value ~= SHARED) then
    return value ~= SHARED and value or call('ZRANGE', ORDER, 0, 0)[1]
  end
  local first = waiting > 0 and call('ZRANGE', WAIT, 0, 0, 'WITHSCORES')
  return first and (not number or tonumber(first[2]) < number) and first[1] or nil
end

-- While the store is closed nothing is granted; a blocker is named all the same.
local function find_blocker(t, number, independent)
  local blocker, first, last, mode = find_open_blocker(t, number, independent)
  if closed and not blocker then return '' end
  return blocker, first, last, mode
end

local function set_pairwise(has_identities)
  if sequence then return end -- there counts decide, always
  pairwise = true
  call('HSET', INFO, 'pairwise', 1)
  if has_identities then call('HSET', INFO, 'identities', 1) end
  forget_looks()
end

-- The number with which a ticket holds: it only grows, though it was overtaken.
local function granted_number(id, t, number)
  local overtaken = t.o or number < top
  if overtaken then
    number = next_number()
    call('ZADD', ORDER, number_text(number), id)
    t.o = nil
  end
  if overtaken or pairwise then
    top = number
    call('HSET', INFO, 'top', number_text(number))
  end
end

-- Hands the lock to one that waits, for as long as it may take to claim it.
local function give(id, t, number)
  call('ZREM', WAIT, id)
  call('ZREM', WAITERS, id)
  waiting, orphaned = waiting - 1, false
  granted_number(id, t, number)
  t.a, t.g = now, 1
  call('ZADD', TERM, number_text(now + CLAIM), id)
  save(id, t)
  if not sequence then call('ZADD', LIST, '0', leaf) end
  hold(id, t, now + CLAIM)
  tell(t, 'g', id)
end

-- For a lock with byte ranges or shared identities: continues behind the last ticket that was looked at.
local function grant_pairwise(left)
  local number = looks_kept()
  local next = number and not_looked_at(number, BUDGET)
  if next and #next == 0 then return end
  if number then
    unpack_looks()
  else
    number, left = look_at_holders(), left - (tickets - waiting)
    next = not_looked_at(number, BUDGET)
  end
  local has_identities = call('HEXISTS', INFO, 'identities') == 1
  for i = 1, #next, 2 do
    local id, t = next[i], load(next[i])
    if not t then
      drop(id)
      return
    end
    number, left = next[i + 1], left - 1
    local blocker = covered(t)
    local u = blocker and has_identities and load(blocker)
    if u and (waits(blocker) or has_same_identity(u, t)) then
      blocker, left = find_pairwise_blocker(t, tonumber(number)), left - tickets
    end
    if not blocker then
      give(id, t, tonumber(number))
      left = left - GIVE
      if has_identities then -- one before it may pass now who waits for it
        forget_looks()
        if left > 0 then grant_pairwise(left) end
        return
      end
    end
    see(id, t)
    if blocker and t.x == 0 and not partial(t) and not has_identities then
      number = '+inf' -- nobody passes this one
      break
    end
    if left <= 0 then break end
  end
  keep_looks(number)
end

local function grant()
  if closed or waiting == 0 or who == 'foreign' or who == 'delay' then return end
  if pairwise then return grant_pairwise(BUDGET) end
  local at, left = 0, BUDGET
  while waiting > at and left > 0 do
    local next = call('ZRANGE', WAIT, at, at, 'WITHSCORES')
    local id, number = next[1], tonumber(next[2])
    local t = load(id)
    left = left - 1
    if not t then
      drop(id)
    elseif not find_blocker(t, number) then
      give(id, t, number)
      left = left - GIVE
    elseif sequence and t.x == 1 and tickets - waiting + at < width() then
      at = at + 1
    else
      return
    end
  end
end

-- Leaves the side keys tidy, at the end of each change.
local function finish()
  if tickets == 0 then
    call('DEL', ORDER, TERM, WAIT, INFO)
    if not sequence and who == 'free' then call('ZREM', LIST, leaf) end
    return
  end
  local last = call('ZRANGE', TERM, -1, -1, 'WITHSCORES')
  local kept = number_text(last[2] + KEPT)
  for _, key in ipairs({ORDER, TERM, INFO}) do call('PEXPIREAT', key, kept) end
  if waiting > 0 then call('PEXPIREAT', WAIT, kept) end
  if orphaned then tell_first_to_ask() end -- it is the one that sees to the holder's deadline, or watches a foreign lock
end
