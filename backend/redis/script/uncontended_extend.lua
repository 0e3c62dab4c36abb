-- uncontended_extend: renews uncontended leases without a fixed term of a mount that has started again, so
-- that there is time to recover them.  See uncontended.c.
--
-- KEYS: L of each lease, VERSION
-- tickets
-- → for each the time that was left before, or -1: it is not renewed; then the shortest term of these, or -1; nothing of
--   any while the store is closed
local a, VERSION = cmsgpack.unpack(ARGV[1]), table.remove(KEYS)
local version, state = (call('GET', VERSION) or ''):match('^(%x+) (%a) ')
if version ~= ARGV[#ARGV] then return redis.error_reply('VERSION leasefs: the server has forgotten what this mount knows') end
if state == 'c' then return {} end

local shortest = -1

local function extend(L, id)
  local value = redis.pcall('GET', L)
  if type(value) ~= 'string' or value:sub(1, #UNCONTENDED + 32) ~= UNCONTENDED .. id then return -1 end
  local delay, at = value:match('^%d+ %d+ (%d+) ()', #UNCONTENDED + 33)
  local t = at and cmsgpack.unpack(value:sub(at))
  local left = type(t) == 'table' and call('PTTL', L) - delay or 0
  if left <= 0 or is_fixed(t.meta) then return -1 end
  call('PEXPIRE', L, string.format('%.0f', t.ttl + delay))
  if shortest < 0 or t.ttl < shortest then shortest = t.ttl end
  return left
end

local result = {}
for i, id in ipairs(a.tickets) do
  local known, left = pcall(extend, KEYS[i], id)
  result[i] = known and left or -1
end
result[#result + 1] = shortest
return result
