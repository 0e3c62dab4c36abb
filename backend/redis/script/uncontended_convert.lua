-- uncontended_convert: the part of convert.lua for an uncontended lock.  See uncontended.c.
--
-- Fields and results: see convert.lua.
look()
if is_uncontended(id) and is_of(uncontended) and a.mode == 0 and not a.owner and #(a.content or '') <= UNCONTENDED_CONTENT then
  if not a.content then call('PEXPIRE', L, number_text(a.ttl + uncontended.d)) end -- see convert.lua
  if uncontended.k ~= a.kind or a.meta then forget(id, uncontended) end
  uncontended.k, uncontended.l, uncontended.h, uncontended.i, uncontended.y = a.kind, a.ttl, a.handle, a.meta or uncontended.i, a.content or uncontended.y
  remember(id, uncontended)
  keep_uncontended(a.ttl)
  return 'ok'
end
