-- recover: what a mount that has started again held; its new channel gets the messages about it from now on.
--
-- A handle lock keeps what it covers, and its handle and lock owner, whose numbers no other mount has.  One that waits
-- ends, unless it is a ticket of a queue: a wait is requested again.
--
-- KEYS: those of head.lua of one lease after the other, RECLAIMED
-- locks ({ticket, note as MINE has it, sequence (1/0), …}); mount: the new channel
-- → for each {number, time left, age, ttl, mode, meta, name in the sequence, waits, content, kind, segments}; or {} if it is
--   not there any more, or what is kept of it is damaged; or {0} if it has ended because it waited, or was not claimed
local RECLAIMED = table.remove(KEYS)

local function recover(note)
  if closed and call('SISMEMBER', RECLAIMED, id) == 0 then return {} end -- it may be another's since
  look()
  if is_uncontended(id) then
    local left = uncontended_left()
    uncontended.m = a.mount
    keep_uncontended(left)
    set_number(uncontended.z .. ' ' .. a.mount .. ' ' .. id .. '+')
    return {uncontended.z, left, now - uncontended.a, uncontended.l, uncontended.x, uncontended.i, '', 0, uncontended.y or '',
      uncontended.k, ''}
  end
  local t, number, deadline = load(id), call('ZSCORE', ORDER, id), call('ZSCORE', TERM, id)
  if not t or not number or not deadline or tonumber(deadline) <= now then
    call('SREM', MINE, note)
    return {}
  end
  local waits = call('ZSCORE', WAIT, id) and 1 or 0
  if t.k ~= 1 and not sequence and (waits == 1 or not t.c) then
    call('ZADD', TERM, '0', id) -- so that whoever looks next ends it
    call('SREM', MINE, note)
    return {0}
  end
  if t.p and t.c then
    call('HDEL', INFO, 'p:' .. t.m .. ' ' .. t.p)
    call('HSET', INFO, 'p:' .. a.mount .. ' ' .. t.p, id)
  end
  t.m, t.u = a.mount, nil
  call('HSET', INFO, id, cmsgpack.pack(t))
  local content, segments = call('HGET', INFO, 'c:' .. id) or '', t.s and table.concat(t.s, ' ') or ''
  return {number, deadline - now, now - t.a, t.l, t.x, t.i, t.n or '', waits, content, t.k, segments}
end

redis.pcall('ZREM', KEYS[9], '') -- a write that a full server permits, before those it would refuse
local result = {}
for i = 0, #a.locks / 3 - 1 do
  L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF, MINE = unpack(KEYS, i * 11 + 1, i * 11 + 11)
  id, sequence = a.locks[3 * i + 1], a.locks[3 * i + 3] == 1
  local known, lock = pcall(recover, a.locks[3 * i + 2])
  result[i + 1] = known and lock or {}
end
return result
