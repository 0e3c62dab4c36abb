-- set: replaces meta or content of a ticket.
--
-- ARGV: leaf, sequence, ticket, meta set (1/0), meta, content set (1/0), content
-- → 'ok' | 'stale'
local _, _, id, set_meta, meta, set_content, content = unpack(ARGV)
expire()
local t = tickets > 0 and load(id)
if not t then
  grant()
  finish()
  return 'stale'
end
if set_meta == '1' then
  t.i = meta
  save(id, t)
end
if set_content == '1' then call('HSET', INFO, 'c:' .. id, content) end
finish()
return 'ok'
