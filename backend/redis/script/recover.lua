-- recover: the leases of a mount that has started again, which are told on another
-- channel from now on.
--
-- KEYS 1: the set that remember of head.lua keeps
-- mount: the new channel; before and behind a name in its key, root: what stands for that of the root; cursor, at first 0
-- → {the next cursor (0: that was all), then for each name, sequence (1/0), ticket, number, time left, age, ttl, mode,
--    meta, name in the sequence, waits (1/0), …}
local a = cmsgpack.unpack(ARGV[1])
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- One lease, or nil; an error if what is kept of it is not what we wrote.
local function lease(id, kind, path)
  local key = path == '' and a.root or a.before .. path .. a.behind
  local packed = call('HGET', 'lfs:i:' .. key, id)
  local deadline = tonumber(call('ZSCORE', 'lfs:t:' .. key, id) or 0)
  if not packed or deadline <= now then return nil end
  local t = cmsgpack.unpack(packed)
  t.m = a.mount
  local found = {path, kind == 's' and 1 or 0, id, call('ZSCORE', 'lfs:o:' .. key, id), deadline - now, now - t.a, t.l,
    t.x, t.i, t.n or '', call('ZSCORE', 'lfs:w:' .. key, id) and 1 or 0}
  call('HSET', 'lfs:i:' .. key, id, cmsgpack.pack(t))
  return #found == 11 and found
end

local part = redis.pcall('SSCAN', KEYS[1], a.cursor, 'COUNT', 500)
if part.err then return {'0'} end -- of the wrong type: what stood there is lost
local result = {part[1]}
for _, member in ipairs(part[2]) do
  local id, kind, path = member:match('^(%x+) (%a) (.*)$')
  local sound, found = pcall(lease, id, kind, path or '')
  if sound and found then
    for _, x in ipairs(found) do result[#result + 1] = x end
  else
    call('SREM', KEYS[1], member)
  end
end
return result
