-- recover: leases of a mount that has started again; its new channel gets the messages about them from now on.
--
-- KEYS: those of head.lua of one lease after the other, RECLAIMED
-- leases ({ticket, path as in acquire.lua, sequence (1/0), …}); mount: the new channel
-- → for each {number, time left, age, ttl, mode, meta, name in the sequence, waits, content}, or {} if it is not there any
--   more, or what is kept of it is damaged
local RECLAIMED = table.remove(KEYS)

local function recover(path)
  if closed and call('SISMEMBER', RECLAIMED, id) == 0 then return {} end -- it may be another's since
  look()
  if is_uncontended(id) then
    local left = uncontended_left()
    uncontended.m = a.mount
    keep_uncontended(left)
    set_number(uncontended.z .. ' ' .. a.mount .. ' ' .. id .. '+')
    return {uncontended.z, left, now - uncontended.a, uncontended.l, uncontended.x, uncontended.i, '', 0, uncontended.y or ''}
  end
  local t, number, deadline = load(id), call('ZSCORE', ORDER, id), call('ZSCORE', TERM, id)
  if not t or not number or not deadline or tonumber(deadline) <= now then
    forget(id, {k = 1, f = path})
    return {}
  end
  t.m = a.mount
  call('HSET', INFO, id, cmsgpack.pack(t))
  local waits = call('ZSCORE', WAIT, id) and 1 or 0
  return {number, deadline - now, now - t.a, t.l, t.x, t.i, t.n or '', waits, call('HGET', INFO, 'c:' .. id) or ''}
end

redis.pcall('ZREM', KEYS[9], '') -- a write that a full server permits, before those it would refuse
local result = {}
for i = 0, #a.leases / 3 - 1 do
  L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF, MINE = unpack(KEYS, i * 11 + 1, i * 11 + 11)
  id, sequence = a.leases[3 * i + 1], a.leases[3 * i + 3] == 1
  local known, lease = pcall(recover, a.leases[3 * i + 2])
  result[i + 1] = known and lease or {}
end
return result
