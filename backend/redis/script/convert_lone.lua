-- convert_lone: the short way of convert.lua, of a lock that is held by one alone.
--
-- Fields and results: see convert.lua.
look()
if is_lone(id) and a.mode == 0 and not a.owner and #(a.content or '') <= LONE_CONTENT then
  if not a.content then call('PEXPIRE', L, number_text(a.ttl + lone.d)) end -- see convert.lua
  if lone.k ~= a.kind then forget(id, lone) end
  lone.k, lone.l, lone.h, lone.i, lone.y = a.kind, a.ttl, a.handle, a.meta or lone.i, a.content or lone.y
  remember(id, lone)
  keep_lone(a.ttl)
  return 'ok'
end
