-- acquire_free: the short way of acquire.lua, where nobody holds or waits.
--
-- Fields, KEYS and results: see acquire.lua.
local content_fits = not a.content or #a.content <= LONE_CONTENT
if not (closed or sequence or a.owner or a.number or a.test or a.mode ~= 0 or KEYS[13]) and content_fits then
  local of_directory = call('HMGET', DIR, 'made', 'delay')
  if (of_directory[1] or not a.needed) and call('EXISTS', L, ORDER, TERM, WAIT, INFO, SELF) == 0 then
    local clock = call('TIME')
    local now_us, delay = clock[1] * 1000000 + clock[2], tonumber(of_directory[2] or 0)
    local number = number_text(math.max(last_number() + 1, now_us))
    call('SET', L, LONE .. id .. cmsgpack.pack({
      m = a.mount, k = a.kind, x = 0, h = a.handle, l = a.ttl, a = math.floor(now_us / 1000), d = delay, i = a.meta,
      f = a.path, c = 1, z = number, y = a.content,
    }), 'PX', number_text(a.ttl + delay))
    set_number(number .. ' ' .. a.mount .. ' ' .. id)
    call('ZADD', LIST, 0, leaf)
    if a.kind == 1 then
      call('SADD', MINE, id .. ' l ' .. a.path)
      call('PEXPIRE', MINE, FENCE_KEPT)
    end
    return {'granted', id, number, '', ''}
  end
end
