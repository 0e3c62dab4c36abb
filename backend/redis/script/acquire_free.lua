-- acquire_free: the short way of acquire.lua, where nobody holds or waits.
--
-- ARGV 3.., where the mount may take it: ticket, mount, ttl, leaf, path, kind, as texts.  KEYS and results: see acquire.lua.
local last = #ARGV > 3 and not closed and (fence or '0'):match('^%d+$') -- else who had it alone has lost it: see last_number
if last then
  local asked, _, ticket, mount, ttl, leaf, path, kind = unpack(ARGV)
  local there = call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[7], KEYS[10]) -- L, its queue, DIR, SELF
  local needed = leaf ~= path
  local made, delay, next_name = not needed, '0', false
  if there == 1 then -- the directory, if it has any of these
    made, delay, next_name = unpack(call('HMGET', KEYS[7], 'made', 'delay', 'sequence'))
    made, delay = made or next_name and not needed, delay or '0'
  end
  if there <= 1 and made then
    local clock = call('TIME')
    local now_us = clock[1] .. ('00000' .. clock[2]):sub(-6)
    local number = now_us
    if tonumber(now_us) <= tonumber(last) then number = string.format('%.0f', last + 1) end
    if delay ~= '0' then ttl = tostring(ttl + delay) end
    call('SET', KEYS[1], LONE .. ticket .. number .. ' ' .. now_us .. ' ' .. delay .. ' ' .. asked, 'PX', ttl)
    call('SET', KEYS[6], number .. ' ' .. mount .. ' ' .. ticket, 'PX', FENCE_KEPT)
    call('ZADD', KEYS[8], '0', leaf)
    if kind == '1' then
      call('SADD', KEYS[11], ticket .. ' l ' .. path)
      call('PEXPIRE', KEYS[11], FENCE_KEPT)
    end
    return 'granted ' .. number
  end
end
