-- uncontended_renew_many: renews many uncontended locks, each as uncontended_renew.lua does.  See uncontended.c.
--
-- KEYS: L of each, MINE
-- tickets; ttl of all, or ttls: of each; lefts: as `left` of renew.lua, or nil: the ttl of each; mount
-- → those that are not renewed, counted from 1: send renew.lua
local a = cmsgpack.unpack(ARGV[1])
local values, tickets, others, find, clock = call('MGET', unpack(KEYS)), a.tickets, {}, string.find, call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local AT = #UNCONTENDED + 33 -- of the number; behind number and time, of 16 digits each until the year 2286, the lock-delay
local known_ttl, begin, expiry -- PEXPIRE would cost Redis a third more: it makes a PEXPIREAT of it

for i = 1, #tickets do
  local value, ttl = values[i], a.ttl or a.ttls[i]
  if ttl ~= known_ttl then
    known_ttl, begin, expiry = ttl, claim_begin(a.mount, ttl), string.format('%.0f', now + ttl)
  end
  local found = value and find(value, tickets[i], AT - 32, true) == AT - 32 and find(value, begin, AT, true)
  local delay, at = '0', AT + 36
  if found and find(value, ' 0 ', AT + 33, true) ~= AT + 33 then delay, at = value:match('^%d+ %d+ (%d+) ()', AT) end
  local less = a.lefts and a.lefts[i] < ttl
  local left = found and at and (less or delay ~= '0') and call('PTTL', KEYS[i]) - delay
  if found and at and found <= at + CLAIM_HEAD and (delay == '0' or left > 0) then -- its term is not over
    local till = less and string.format('%.0f', now + math.max(a.lefts[i], math.min(left, ttl))) or expiry
    call('PEXPIREAT', KEYS[i], delay == '0' and till or string.format('%.0f', till + delay))
  else
    others[#others + 1] = i
  end
end
call('PEXPIRE', KEYS[#KEYS], FENCE_KEPT)
return others
