-- convert: turns a ticket into another claim, in place.
--
-- ARGV: leaf, sequence, ticket, kind, mode, handle, lock owner, start, end, ttl, odd (1/0), liveness,
--       meta set (1/0), meta, content set (1/0), content
-- → 'ok' | 'busy' | 'stale'
local _, _, id, kind, mode, handle, owner, start, last, ttl, is_odd, liveness, set_meta, meta, set_content, content =
  unpack(ARGV)
expire()
local t = tickets > 0 and load(id)
if not t or not call('ZSCORE', ORDER, id) then
  finish()
  return 'stale'
end
local waited = waits(id)
local was, kind_was = t.x, t.k
if t.p and t.c then call('HDEL', INFO, owner_key(t.m, t.p)) end
t.k, t.x, t.l = tonumber(kind), tonumber(mode), tonumber(ttl)
t.h, t.p = handle ~= '' and handle or nil, owner ~= '' and owner or nil
t.s = t.p and {start, last, t.x} or nil
t.u = nil

-- Whether holders other than this one exclude what it is to become.  In a
-- sequence those before it leave room for `width` exclusive ones, but none for
-- one among shared ones.
local function excluded()
  if sequence and (t.x == 1 or was == 0) then return false end
  if sequence and tickets - waiting > width() then return true end
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
if partial(t) or tickets > 1 and is_odd == '1' then set_odd(is_odd == '1') end
forget_looks()
if set_meta == '1' then t.i = meta end
if set_content == '1' then call('HSET', INFO, 'c:' .. id, content) end
save(id, t)
if kind_was ~= t.k then forget(id, {k = kind_was, b = t.b, f = t.f}) end
remember(id, t)
local deadline = now + (waited and liveness or t.l)
call('ZADD', TERM, number_text(deadline), id)
if not waited then hold(id, t, deadline) end
grant()
finish()
return 'ok'
