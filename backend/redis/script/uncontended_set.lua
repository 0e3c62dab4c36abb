-- uncontended_set: the part of set.lua for an uncontended lock.  See uncontended.c.
--
-- Fields and results: see set.lua.
if a.unreported then call('ZREM', WAITERS, '') end -- a write that a full server permits, before those it would refuse
look()
if is_uncontended(id) and is_of(uncontended) and #(a.content or '') <= UNCONTENDED_CONTENT then
  if a.meta then set_meta(id, uncontended, a.meta) end
  uncontended.y = a.content or uncontended.y
  keep_uncontended(uncontended_left())
  return 'ok'
end
