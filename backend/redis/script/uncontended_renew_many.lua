-- uncontended_renew_many: renews many uncontended locks, each as uncontended_renew.lua does.  See uncontended.c.
--
-- KEYS: L of each, MINE
-- tickets: ticket and ttl of each; mount
-- → for each 1, or 0: send renew.lua
local a = cmsgpack.unpack(ARGV[1])
local values, result, begins = call('MGET', unpack(KEYS)), {}, {}

for i = 1, #KEYS - 1 do
  local L, value, id, ttl = KEYS[i], values[i], a.tickets[2 * i - 1], a.tickets[2 * i]
  begins[ttl] = begins[ttl] or claim_begin(a.mount, ttl)
  local delay, at
  if value and value:sub(1, #UNCONTENDED + 32) == UNCONTENDED .. id then
    delay, at = value:match('^%d+ %d+ (%d+) ()', #UNCONTENDED + 33)
  end
  local begin = at and value:find(begins[ttl], at, true)
  result[i] = 0
  if begin and begin <= at + CLAIM_HEAD and (delay == '0' or call('PTTL', L) > tonumber(delay)) then -- its term is not over
    call('PEXPIRE', L, string.format('%.0f', ttl + delay))
    result[i] = 1
  end
end
call('PEXPIRE', KEYS[#KEYS], FENCE_KEPT)
return result
