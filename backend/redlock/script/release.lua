-- release: lets go what has this digest.
--
-- SHA-1 of the token, leaf, channel; why: it is not its holder that ends it ('': it is); its number, or 0; its guard in
-- ms, or 0: for so long what its holder has lost is not let go, but under a token that nobody extends
-- → {'ok', 1, or 0 if it was gone}
local digest, leaf, channel, why, number, guard = unpack(ARGV)
local value, ended = holder(), 0
if value and redis.sha1hex(value) == digest then
  if why ~= '' then call('PUBLISH', channel, 'e ' .. value:sub(1, 64) .. ' ' .. why) end
  local left = math.min(call('PTTL', L), tonumber(guard))
  if left > 0 then
    local nobodys = 'g' .. value:sub(2)
    call('SET', L, nobodys, 'PX', text(left))
    if call('HGET', RECORD, 'token') == value then call('HSET', RECORD, 'token', nobodys) end
    call('PEXPIRE', RECORD, text(left))
    ended = 1
  else
    ended = call('DEL', L)
    value = false
  end
end
if why ~= '' and number ~= '0' and last_number() <= tonumber(number) then -- its holder may not have heard of it: see hold.lua
  call('SET', NUMBER, text(number + 1), 'PX', NUMBER_KEPT)
end
if not value then
  call('DEL', RECORD)
  call('ZREM', LIST, leaf)
end
return {'ok', ended}
