-- set: replaces meta or content of a ticket.
--
-- leaf, sequence, ticket; meta and content, where they are to be set
-- → 'ok' | 'stale'
look()
if is_lone(id) and #(a.content or '') <= LONE_CONTENT then
  lone.i, lone.y = a.meta or lone.i, a.content or lone.y
  keep_lone(lone_left())
  return 'ok'
end
expire()
local t = tickets > 0 and load(id)
if not t then
  grant()
  finish()
  return 'stale'
end
if a.meta then
  t.i = a.meta
  save(id, t)
end
if a.content then call('HSET', INFO, 'c:' .. id, a.content) end
finish()
return 'ok'
