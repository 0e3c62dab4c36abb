-- release: ends a ticket, whether it holds or waits, and hands the lock on.
--
-- leaf, sequence, ticket, mount; noted: what MINE has of it, or nil; why, if it is against its holder's will: the lock-delay
-- runs; owner: the lock owner
-- → 1, or 0 if it was not there (any more), or 2 if it is, as a part of what its lock owner holds, and stays it

-- It was taken into the ticket with which its lock owner holds: what that got by it is given back.  If others
-- hold now what it had before, that cannot be: true.
local function undo(into, t)
  for i, u in ipairs(t.u) do
    if u[1] == id then
      call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
      table.remove(t.u, i)
      for j = 1, #u[2], 3 do t.s = replace(t.s, u[2][j], u[2][j + 1], nil) end
      for j = 1, #u[3], 3 do t.s = replace(t.s, u[3][j], u[3][j + 1], u[3][j + 2]) end
      forget_looks()
      if #t.s == 0 then
        if drop(into, t) then vacate(0) end
        return
      end
      set_mode(t)
      for other in holders() do
        local held = other ~= into and load(other)
        if held and conflict(held, t) then return true end
      end
      if partial(t) and not pairwise then set_pairwise() end
      save(into, t)
      hold(into, t, tonumber(call('ZSCORE', TERM, into)))
      return
    end
  end
end

call('ZREM', WAITERS, id) -- a write that a full server permits, before those it would refuse
expire()
local t, found = load(id), 0
local delays = sequence and t and not t.n and not waits(id) -- it has ended already: its place is kept for the lock-delay
if call('ZSCORE', ORDER, id) and not delays and (not t or is_of(t)) then
  found = 1
  if not t or waits(id) or not a.why then
    if drop(id, t) then vacate(0) end
  else
    local delay = lose(id, t, a.why, now)
    vacate(delay)
    tell_delay(delay)
  end
elseif a.noted then
  redis.pcall('SREM', MINE, a.noted)
end
local noted = a.owner and found == 0 and tickets > 0 and call('HGET', INFO, owner_key(a.mount, a.owner))
local into = noted and not waits(noted) and load(noted)
if into and into.u and undo(noted, into) then found = 2 end
grant()
finish()
return found
