-- recover: the leases of a mount that has started again, which are told on another
-- channel from now on.
--
-- KEYS 1: the set that remember of head.lua keeps
-- ARGV: mount (the new channel), key before a name, key after it
-- → {name, sequence (1/0), ticket, number, time left, age, ttl, mode, meta, name in the sequence,
--    waits (1/0), …}
local mount, before, behind = unpack(ARGV)
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local result = {}

for _, member in ipairs(call('SMEMBERS', KEYS[1])) do
  local id, kind, path = member:match('^(%x+) (%a) (.*)$')
  local key = path == '' and 'lfs:' .. before .. '/' .. behind or before .. path .. behind
  local tag = key:match('{([^}]*)}')
  local side = tag and tag ~= '' and key or '{' .. key .. '}'
  local packed = call('HGET', 'lfs:i:' .. side, id)
  local deadline = tonumber(call('ZSCORE', 'lfs:t:' .. side, id) or 0)
  if packed and deadline > now then
    local t = cmsgpack.unpack(packed)
    t.m = mount
    call('HSET', 'lfs:i:' .. side, id, cmsgpack.pack(t))
    local number = call('ZSCORE', 'lfs:o:' .. side, id)
    for _, x in ipairs({path, kind == 's' and 1 or 0, id, number, deadline - now, now - t.a, t.l, t.x, t.i, t.n or '',
      call('ZSCORE', 'lfs:w:' .. side, id) and 1 or 0}) do
      result[#result + 1] = x
    end
  else
    call('SREM', KEYS[1], member)
  end
end
return result
