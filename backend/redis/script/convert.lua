-- convert: turns a ticket into another claim, in place.
--
-- leaf, sequence, ticket, kind, mode, ttl, liveness; handle; owner: the lock owner, with start and finish of its range;
-- shares_identity: the mount has another ticket with its identity; meta and content, where they change
-- → 'ok' | 'busy' | 'stale' | 'grace': nothing is granted while the store is closed
expire(true)
local t = tickets > 0 and load(id)
if not t or not is_of(t) or not call('ZSCORE', ORDER, id) then
  finish()
  return 'stale'
end
local waited = waits(id)
local was, noted = t.x, {k = t.k, i = t.i, f = t.f}
if closed and not waited and a.mode == 0 and (was ~= 0 or partial(t)) then
  finish()
  return 'grace'
end
-- It is a lock already, and its close may have been answered: a write that a full server permits, before those it would
-- refuse.  Only a content needs room.
if not a.content then call('ZREM', WAITERS, '') end
if t.p and t.c then call('HDEL', INFO, owner_key(t.m, t.p)) end
t.k, t.x, t.l, t.h, t.p = a.kind, a.mode, a.ttl, a.handle, a.owner
t.s = t.p and {a.start, a.finish, t.x}
t.u = nil

-- Whether holders other than this one exclude what it is to become.  In a
-- sequence those before it leave room for `width` exclusive ones, but none for
-- one among shared ones.
local function excluded()
  if sequence and (t.x == 1 or was == 0) then return false end
  if sequence and tickets - waiting > width() then return true end
  if not sequence and not pairwise and not a.shares_identity then return t.x == 0 end -- all share the whole of it, and none has its identity
  for other in holders() do
    local u = other ~= id and load(other)
    if u and (sequence and u.x == 1 or not sequence and conflict(u, t)) then return true end
  end
  return false
end

if not waited and tickets - waiting > 1 and excluded() then
  finish()
  return 'busy'
end
if partial(t) or tickets > 1 and a.shares_identity then set_pairwise(a.shares_identity) end
forget_looks()
if a.meta then t.i = a.meta end
if a.content then call('HSET', INFO, 'c:' .. id, a.content) end
save(id, t)
if in_mine(id, noted) ~= in_mine(id, t) then forget(id, noted) end
remember(id, t)
local deadline = now + (waited and a.liveness or t.l)
call('ZADD', TERM, number_text(deadline), id)
if not waited then hold(id, t, deadline) end
grant()
finish()
return 'ok'
