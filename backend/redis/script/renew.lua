-- renew: extends a ticket that holds.
--
-- leaf, sequence, ticket, ttl, mode
-- → 1, or 0 if it does not hold (any more), or 2 if it holds in another mode: a conversion was lost with a failed server,
--   and others may hold beside it
local t = load(id)
if t and not t.p and t.x ~= a.mode then return 2 end
-- of a full server: a write that it permits goes first
if sequence then
  call('ZREM', WAITERS, '')
elseif t then
  local has = redis.pcall('GET', L)
  if has == id then
    call('PEXPIRE', L, number_text(a.ttl + t.d))
  elseif has == SHARED then
    call('PEXPIRE', L, number_text(math.max(a.ttl + t.d, call('PTTL', L))))
  end
end
expire()
if not t or not call('ZSCORE', ORDER, id) or waits(id) then
  if not t and call('ZSCORE', ORDER, id) and drop(id) then vacate(0) end -- what INFO said of it was deleted
  grant()
  finish()
  return 0
end
call('ZADD', TERM, number_text(now + a.ttl), id)
t.l = a.ttl
save(id, t)
finish()
return 1
