-- release: ends a ticket, whether it holds or waits, and hands the lock on.
--
-- ARGV: leaf, sequence, ticket, why ('' by its holder; else against its will: the lock-delay runs),
--       identity of the mount ('': it is no lease, or will not be looked for), name as in acquire.lua
-- → 1, or 0 if it was not there (any more)
local t = load(id)
if t then call('ZREM', WAITERS, id) end -- a write that a full server permits, before those it would refuse
expire()
local found = 0
if call('ZSCORE', ORDER, id) then
  found = 1
  if not t or waits(id) or why == '' then
    if drop(id, t) then vacate(0) end
  else
    local delay = lose(id, t, why, now)
    vacate(delay)
    tell_delay(delay)
  end
end
grant()
finish()
return found
