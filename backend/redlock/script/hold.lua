-- hold: extends a holder's key and writes its record.  A key that lasts longer than `ttl` keeps its end, up to the
-- record's ttl from now.  With `give` a server that lacks the key gets it, also in place of
-- an earlier holder, or of a claim without a majority; but not if NUMBER is greater: then the lock was broken, or another
-- has held it since.
--
-- KEYS 5: NOTES
-- ARGV: token, ttl of the key, leaf; the record; give; the note ('': none), and its score
-- → {'ok'} | {'given'} | {'gone'} | {'held', …}
local NOTES = KEYS[5]
local token, ttl, leaf, number, give = ARGV[1], ARGV[2], ARGV[3], ARGV[8], ARGV[11] == '1'
local note, score = ARGV[12], ARGV[13]
local value, word = holder(), 'ok'
if value == token then
  call('PEXPIRE', L, string.format('%.0f', math.max(ttl, math.min(call('PTTL', L), ARGV[4]))))
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
if note ~= '' then
  call('ZADD', NOTES, score, note)
  call('PEXPIRE', NOTES, NUMBER_KEPT)
end
return {word}
