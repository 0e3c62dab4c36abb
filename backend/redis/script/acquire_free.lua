-- acquire_free: the short way of acquire.lua, where nobody holds or waits.
--
-- Fields, KEYS and results: see acquire.lua.
local content_fits = not a.content or #a.content <= LONE_CONTENT
if not (closed or sequence or a.owner or a.number or a.test or a.mode ~= 0 or KEYS[13]) and content_fits then
  local there = call('EXISTS', L, ORDER, TERM, WAIT, INFO, SELF, DIR)
  local made, delay, next_name = not a.needed, false, false
  if there == 1 then -- the directory, if it has any of these
    made, delay, next_name = unpack(call('HMGET', DIR, 'made', 'delay', 'sequence'))
    made = made or next_name and not a.needed
  end
  if there <= 1 and made then
    local clock, last = call('TIME'), last_number()
    local now_us = clock[1] * 1000000 + clock[2]
    local number = now_us > last and clock[1] .. ('00000' .. clock[2]):sub(-6) or number_text(last + 1)
    delay = tonumber(delay or 0)
    call('SET', L, LONE .. id .. cmsgpack.pack({
      m = a.mount, k = a.kind, x = 0, h = a.handle, l = a.ttl, a = math.floor(now_us / 1000), d = delay, i = a.meta,
      f = a.path, c = 1, z = number, y = a.content,
    }), 'PX', tostring(a.ttl + delay))
    set_number(number .. ' ' .. a.mount .. ' ' .. id)
    call('ZADD', LIST, '0', leaf)
    if a.kind == 1 then
      call('SADD', MINE, id .. ' l ' .. a.path)
      call('PEXPIRE', MINE, FENCE_KEPT)
    end
    return {'granted', id, number}
  end
end
