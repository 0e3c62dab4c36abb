-- release: removes the key whose value has this digest.
--
-- KEYS 5: NOTES
-- ARGV: SHA-1 of the token, leaf, channel, why ('': its holder releases it; else the reason of a revocation), its number
-- or 0, guard (ms for which the key stays, with a token that nobody extends; 0: none), the note in NOTES ('': none)
-- → {'ok', 1, or 0 if there was no such key, how many mounts got the message of a revocation}
local NOTES = KEYS[5]
local digest, leaf, channel, why, number, guard, note = unpack(ARGV)
local value, ended, heard = holder(), 0, 0
if value and redis.sha1hex(value) == digest then
  if why ~= '' then heard = call('PUBLISH', channel, 'e ' .. value:sub(1, 64) .. ' ' .. why) end
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
if why ~= '' and number ~= '0' and last_number() <= tonumber(number) then -- so that its holder cannot restore it: see hold.lua
  call('SET', NUMBER, text(number + 1), 'PX', NUMBER_KEPT)
end
if note ~= '' then redis.pcall('ZREM', NOTES, note) end
if not value then
  call('DEL', RECORD)
  call('ZREM', LIST, leaf)
end
return {'ok', ended, heard}
