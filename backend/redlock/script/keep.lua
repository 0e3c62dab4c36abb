-- keep: extends what is held, and says what its record is to say; where this server has lost it, it is given again,
-- also in place of a try, which has no number yet: that does not hold unless it is kept by a majority, too.
--
-- token, ttl of the key, leaf; and of the record
-- → {'ok'} | {'given'} | {'gone'} | {'held', …}
local token, ttl, leaf, number = ARGV[1], ARGV[2], ARGV[3], ARGV[8]
local value, word = holder(), 'ok'
if value == token then
  if tonumber(ttl) >= tonumber(ARGV[4]) or call('PTTL', L) < tonumber(ttl) then -- else it is not extended
    call('PEXPIRE', L, ttl)
  end
elseif value and not (ARGV[11] == '1' and is_try(value)) then
  return held(value)
elseif young or ARGV[11] == '1' then
  word = 'given'
  call('SET', L, token, 'PX', ttl)
else
  return {'gone'}
end
write_record(token, 4)
call('PEXPIRE', RECORD, call('PTTL', L))
call('ZADD', LIST, 0, leaf)
if last_number() < tonumber(number) then call('SET', NUMBER, number, 'PX', NUMBER_KEPT) end
return {word}
