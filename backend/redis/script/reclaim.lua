-- reclaim: while the store is closed a mount puts back what it believes in, whatever the server has of it.
--
-- Fields of acquire.lua; left: as in renew.lua; mode and segments: what it holds; number: its old one; age: ms since it was granted
-- → as renew.lua, which stands behind it and does it once the store is open again; or 3 if the server did not have it.
--   Of two that were reclaimed the later grant holds; what was not reclaimed gives way.
local RECLAIMED = table.remove(KEYS)

local function reclaim()
  expire()
  local number, there = tonumber(a.number), tickets > 0 and call('ZSCORE', ORDER, id)
  local t = record(a)
  t.a, t.d, t.c, t.n = now - a.age, tonumber(call('HGET', DIR, 'delay') or 0), 1, sequence and leaf or nil
  t.s = a.segments or a.owner and WHOLE[a.mode] or nil
  if there then drop(id, load(id)) end

  local given_way = {}
  for other, at in holders() do
    local u = load(other)
    if not u or sequence and u.n == t.n or not sequence and conflict(u, t) then
      if at > number and call('SISMEMBER', RECLAIMED, other) == 1 then
        finish()
        return 0
      end
      given_way[#given_way + 1] = {other, u, at < number}
    end
  end
  if who == 'foreign' then
    finish()
    return 0
  end
  for _, g in ipairs(given_way) do
    local other, u, earlier = unpack(g)
    drop(other, u or nil)
    if u and earlier then tell(u, 'e', other, ' reclaimed') end
  end
  set_number(number_text(math.max(last_number(), number)))
  tickets = tickets + 1
  call('ZADD', ORDER, number_text(number), id)
  call('ZADD', TERM, number_text(now + a.left), id)
  call('ZADD', LIST, '0', leaf)
  call('SADD', RECLAIMED, id)
  call('PEXPIRE', RECLAIMED, FENCE_KEPT)
  if a.content then call('HSET', INFO, 'c:' .. id, a.content) end
  if sequence then
    call('HSET', INFO, 's:' .. leaf, id)
    raise_sequence(leaf)
  end
  remember(id, t)
  save(id, t)
  if partial(t) or a.shares_identity then set_pairwise(a.shares_identity) end
  forget_looks()
  hold(id, t, now + a.left)
  finish()
  return there and 1 or 3
end

if closed then return reclaim() end
look()
