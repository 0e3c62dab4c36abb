-- renew: extends the keys of many holders, where their records are as the mount has them; hold.lua renews the others.
--
-- KEYS: L, RECORD and NUMBER of each, then NOTES
-- ARGV: of each token, ttl, revision and number
-- → {'ok', for each lock a digit: 1, or 0: it is not extended}
local values, renewed = call('MGET', unpack(KEYS)), {}

for i = 0, #KEYS / 3 - 1 do
  local L, RECORD = KEYS[3 * i + 1], KEYS[3 * i + 2]
  local token, ttl, revision, number = unpack(ARGV, 4 * i + 1, 4 * i + 4)
  local last = tonumber(values[3 * i + 3] or nil)
  local r = values[3 * i + 1] == token and call('HMGET', RECORD, 'token', 'ttl', 'revision', 'number')
  local same = r and r[1] == token and r[2] == ttl and r[3] == revision and r[4] == number
  if same and last and last >= tonumber(number) then
    call('PEXPIRE', L, ttl)
    call('PEXPIRE', RECORD, ttl)
    renewed[i + 1] = 1
  else
    renewed[i + 1] = 0
  end
end
call('PEXPIRE', KEYS[#KEYS], NUMBER_KEPT)
return {'ok', table.concat(renewed)}
