-- keep: extends what is held, and says what its record is to say; where this server has it not, it is given (again),
-- also in place of one of before and of a try, which does not hold unless it is kept by a majority, too.  Not if the
-- number here is greater: then it was broken, or another has held since.
--
-- token, ttl of the key, leaf; of the record; give: it may be given
-- → {'ok'} | {'given'} | {'gone'} | {'held', …}
local token, ttl, leaf, number, give = ARGV[1], ARGV[2], ARGV[3], ARGV[8], ARGV[11] == '1'
local value, word = holder(), 'ok'
if value == token then
  if tonumber(ttl) >= tonumber(ARGV[4]) or call('PTTL', L) < tonumber(ttl) then -- else it is not extended
    call('PEXPIRE', L, ttl)
  end
elseif value and not (give and is_before(value, number)) then
  return held(value)
elseif give and last_number() <= tonumber(number) then
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
