-- uncontended_recover: recover.lua for uncontended locks.  It also renews those without a fixed term.  See uncontended.c.
--
-- KEYS: L and FENCE of each lease, MINE, VERSION
-- tickets; mount: the new channel
-- → for each {number, time left before, age, ttl, mode, meta, '', 0, content, kind, 1 if it is renewed}, or 0: send
--   recover.lua; nothing of any while the store is closed
local a, VERSION, MINE = cmsgpack.unpack(ARGV[1]), table.remove(KEYS), table.remove(KEYS)
local version, state = (call('GET', VERSION) or ''):match('^(%x+) (%a) ')
if version ~= ARGV[#ARGV] then return redis.error_reply('VERSION leasefs: the server has forgotten what this mount knows') end
if state == 'c' then return {} end

local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function recover(L, FENCE, id)
  local value = redis.pcall('GET', L)
  if type(value) ~= 'string' or value:sub(1, #UNCONTENDED + 32) ~= UNCONTENDED .. id then return 0 end
  local number, us, delay, at = value:match('^(%d+) (%d+) (%d+) ()', #UNCONTENDED + 33)
  local t = at and cmsgpack.unpack(value:sub(at))
  local left = call('PTTL', L) - (delay or 0)
  if type(t) ~= 'table' or left <= 0 then return 0 end
  local renewed = not is_fixed(t.meta)
  t.mount = a.mount
  local px = string.format('%.0f', (renewed and t.ttl or left) + delay)
  call('SET', L, value:sub(1, at - 1) .. pack_claim(t), 'PX', px)
  call('SET', FENCE, number .. ' ' .. a.mount .. ' ' .. id .. '+', 'PX', FENCE_KEPT)
  local age = now - math.floor(us / 1000)
  return {number, left, age, t.ttl, t.mode, t.meta, '', 0, t.content or '', t.kind, renewed and 1 or 0}
end

redis.pcall('SREM', MINE, '-') -- a write that a full server permits, before those it would refuse
local result = {}
for i, id in ipairs(a.tickets) do
  local known, lease = pcall(recover, KEYS[2 * i - 1], KEYS[2 * i], id)
  result[i] = known and lease or 0
end
return result
