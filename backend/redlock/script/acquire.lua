-- acquire: takes the lock, if it is free here.
--
-- KEYS 5..7: DIR of the name, DIR of its directory, and the key of a lock with the directory's name
-- ARGV: token, ttl of the key, leaf, needed (its directory must exist), wait, channel; the record
-- → {'ok', the next number} | {'held', …} | {'missing'} | {'notdirectory'} | {'directory'} | {''}
local token, ttl, leaf, needed, wait, channel = unpack(ARGV)
local value = holder()
if value == token then -- a repeated request, which may be older than a renewal
  if call('PTTL', L) < tonumber(ttl) then
    call('PEXPIRE', L, ttl)
    call('PEXPIRE', RECORD, ttl)
  end
  return {'ok', next_number()}
end
if call('EXISTS', KEYS[5]) == 1 then return {'directory'} end
if needed == '1' and call('EXISTS', KEYS[6]) == 0 then
  return {call('EXISTS', KEYS[7]) == 1 and 'notdirectory' or 'missing'}
end
if value then
  if wait == '1' then call('PUBLISH', channel, 'w ' .. value:sub(1, 64)) end
  return held(value)
end
if held_off then return {''} end -- a holder may be about to restore it here
call('SET', L, token, 'PX', ttl)
write_record(token, 7)
call('PEXPIRE', RECORD, ttl)
call('ZADD', LIST, 0, leaf)
return {'ok', next_number()}
