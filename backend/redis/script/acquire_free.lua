-- acquire_free: the short way of acquire.lua, where nobody holds or waits.
--
-- Fields, KEYS and results: see acquire.lua.
if a.needed and call('EXISTS', DIR) == 0 then
  return {redis.pcall('EXISTS', KEYS[12]) == 1 and 'notdirectory' or 'missing'}
end
if not sequence then
  if call('EXISTS', SELF) == 1 then return {'directory'} end
  look()
  if who == 'free' and tickets == 0 and not broken and not a.owner and not a.number and not a.test and not KEYS[13] then
    local at, deadline = number_text(next_number()), now + a.ttl
    local delay = tonumber(call('HGET', DIR, 'delay') or 0)
    local t = {
      m = a.mount, k = a.kind, x = a.mode, h = a.handle, l = a.ttl, a = now, d = delay, i = a.meta, f = a.path, c = 1,
    }
    call('SET', L, a.mode == 0 and id or SHARED, 'PX', number_text(a.ttl + delay))
    call('ZADD', ORDER, at, id)
    call('ZADD', TERM, number_text(deadline), id)
    call('HSET', INFO, id, cmsgpack.pack(t))
    if a.content then call('HSET', INFO, 'c:' .. id, a.content) end
    call('ZADD', LIST, 0, leaf)
    remember(id, t)
    local kept = number_text(deadline + KEPT)
    call('PEXPIREAT', ORDER, kept)
    call('PEXPIREAT', TERM, kept)
    call('PEXPIREAT', INFO, kept)
    return {'granted', id, at, '', ''}
  end
end
