-- acquire_free: the short way of acquire.lua, where nobody holds or waits.
--
-- ARGV, KEYS and results: see acquire.lua.
local _, _, needed, id, mount, kind, mode, handle, owner, start, finish_at, ttl, wait, number, is_odd, liveness, meta,
  content, test, identity, path = unpack(ARGV)
kind, mode, ttl, liveness, number = tonumber(kind), tonumber(mode), tonumber(ttl), tonumber(liveness), tonumber(number)

if needed == '1' and call('EXISTS', DIR) == 0 then
  return {redis.pcall('EXISTS', KEYS[11]) == 1 and 'notdirectory' or 'missing'}
end
if not sequence then
  if call('EXISTS', SELF) == 1 then return {'directory'} end
  look()
  if who == 'free' and tickets == 0 and not broken and owner == '' and number == 0 and test == '0' and not KEYS[12] then
    local at, deadline = number_text(next_number()), now + ttl
    local delay = tonumber(call('HGET', DIR, 'delay') or 0)
    local t = {m = mount, k = kind, x = mode, l = ttl, a = now, d = delay, i = meta, c = 1}
    if handle ~= '' then t.h = handle end
    if identity ~= '' then t.b, t.f = identity, path end
    call('SET', L, mode == 0 and id or SHARED, 'PX', number_text(ttl + delay))
    call('ZADD', ORDER, at, id)
    call('ZADD', TERM, number_text(deadline), id)
    call('HSET', INFO, id, cmsgpack.pack(t))
    if content ~= '' then call('HSET', INFO, 'c:' .. id, content) end
    call('ZADD', LIST, 0, leaf)
    remember(id, t)
    local kept = number_text(deadline + KEPT)
    call('PEXPIREAT', ORDER, kept)
    call('PEXPIREAT', TERM, kept)
    call('PEXPIREAT', INFO, kept)
    return {'granted', id, at, '', ''}
  end
end
