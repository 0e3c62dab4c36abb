-- recover: one lease of a mount that has started again, which is told on another channel from now on.
--
-- sequence, ticket, path as in acquire.lua; mount: the new channel
-- → {number, time left, age, ttl, mode, meta, name in the sequence, waits, content}, or {} if it is not there any more
local RECLAIMED = table.remove(KEYS)
if closed and call('SISMEMBER', RECLAIMED, id) == 0 then return {} end -- it may be another's since
look()
if is_lone(id) then
  local left = lone_left()
  lone.m = a.mount
  keep_lone(left)
  set_number(lone.z .. ' ' .. a.mount .. ' ' .. id .. '+')
  return {lone.z, left, now - lone.a, lone.l, lone.x, lone.i, '', 0, lone.y or ''}
end
local t, number, deadline = load(id), call('ZSCORE', ORDER, id), call('ZSCORE', TERM, id)
if not t or not number or not deadline or tonumber(deadline) <= now then
  forget(id, {k = 1, f = a.path})
  return {}
end
t.m = a.mount
call('HSET', INFO, id, cmsgpack.pack(t))
local waits = call('ZSCORE', WAIT, id) and 1 or 0
return {number, deadline - now, now - t.a, t.l, t.x, t.i, t.n or '', waits, call('HGET', INFO, 'c:' .. id) or ''}
