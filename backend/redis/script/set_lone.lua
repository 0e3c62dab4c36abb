-- set_lone: the short way of set.lua, of a lock that is held by one alone.
--
-- Fields and results: see set.lua.
if a.untold then call('ZREM', WAITERS, '') end -- a write that a full server permits, before those it would refuse
look()
if is_lone(id) and #(a.content or '') <= LONE_CONTENT then
  lone.i, lone.y = a.meta or lone.i, a.content or lone.y
  keep_lone(lone_left())
  return 'ok'
end
