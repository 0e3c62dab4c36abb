-- uncontended_renew: the part of renew.lua for an uncontended lock.  See uncontended.c.
--
-- Fields and results: see renew.lua.
look()
if is_uncontended(id) and is_of(uncontended) and a.mode == 0 and uncontended.l == a.ttl then
  local left = math.max(a.left, math.min(uncontended_left(), a.ttl))
  call('PEXPIRE', L, number_text(left + uncontended.d)) -- of a full server: a write that it permits goes first
  if uncontended.k ~= 0 then call('PEXPIRE', MINE, FENCE_KEPT) end
  return 1
end
