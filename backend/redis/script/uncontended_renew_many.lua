-- uncontended_renew_many: renews many uncontended locks, each as uncontended_renew.lua does.  See uncontended.c.
--
-- KEYS: L of each, MINE
-- tickets: ticket and ttl of each; mount
-- → for each 1, or 0: send renew.lua
local a = cmsgpack.unpack(ARGV[1])
local values, result, begins, terms = call('MGET', unpack(KEYS)), {}, {}, {}
local AT = #UNCONTENDED + 33 -- of the number; behind number and time, of 16 digits each until the year 2286, the lock-delay

for i = 1, #KEYS - 1 do
  local L, value, id, ttl = KEYS[i], values[i], a.tickets[2 * i - 1], a.tickets[2 * i]
  if not terms[ttl] then begins[ttl], terms[ttl] = claim_begin(a.mount, ttl), string.format('%.0f', ttl) end
  local begin = value and value:find(id, AT - 32, true) == AT - 32 and value:find(begins[ttl], AT, true)
  local delay, at = '0', AT + 36
  if begin and value:find(' 0 ', AT + 33, true) ~= AT + 33 then delay, at = value:match('^%d+ %d+ (%d+) ()', AT) end
  result[i] = 0
  if begin and at and begin <= at + CLAIM_HEAD and (delay == '0' or call('PTTL', L) > tonumber(delay)) then -- its term is not over
    call('PEXPIRE', L, delay == '0' and terms[ttl] or string.format('%.0f', ttl + delay))
    result[i] = 1
  end
end
call('PEXPIRE', KEYS[#KEYS], FENCE_KEPT)
return result
