-- set: replaces meta or content of a ticket.
--
-- leaf, sequence, ticket; meta and content, where they change; unreported: no caller gets the result, so a full server may refuse it
-- → 'ok' | 'stale'
expire(true)
local t = tickets > 0 and load(id)
if not t or not is_of(t) then
  grant()
  finish()
  return 'stale'
end
if a.meta then
  set_meta(id, t, a.meta)
  save(id, t)
end
if a.content then call('HSET', INFO, 'c:' .. id, a.content) end
finish()
return 'ok'
