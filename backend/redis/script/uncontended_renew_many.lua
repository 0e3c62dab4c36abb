-- uncontended_renew_many: renews many uncontended locks, each as uncontended_renew.lua does.  See uncontended.c.
--
-- KEYS: L of each, MINE
-- tickets: ticket and ttl of each; mount
-- → for each 1, or 0: send renew.lua
local a = cmsgpack.unpack(ARGV[1])
local result, noted = {}, false
local MINE = KEYS[#KEYS]

local function renew(L, id, ttl)
  local value = redis.pcall('GET', L)
  if type(value) ~= 'string' or value:sub(1, #UNCONTENDED + 32) ~= UNCONTENDED .. id then return 0 end
  local delay, at = value:match('^%d+ %d+ (%d+) ()', #UNCONTENDED + 33)
  local claim = at and cmsgpack.unpack(value:sub(at))
  if type(claim) ~= 'table' or claim.ttl ~= ttl or claim.mode ~= 0 or claim.mount ~= a.mount then return 0 end
  if delay ~= '0' then
    if call('PTTL', L) <= tonumber(delay) then return 0 end -- its term is over
    ttl = ttl + delay
  end
  call('PEXPIRE', L, string.format('%.0f', ttl))
  noted = noted or claim.kind ~= 0
  return 1
end

for i = 1, #KEYS - 1 do
  local known, renewed = pcall(renew, KEYS[i], a.tickets[2 * i - 1], a.tickets[2 * i])
  result[i] = known and renewed or 0
end
if noted then call('PEXPIRE', MINE, FENCE_KEPT) end
return result
