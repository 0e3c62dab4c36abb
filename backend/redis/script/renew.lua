-- renew: extends a ticket that holds.  The script before it has looked.
--
-- leaf, sequence, ticket, ttl; left: how long it holds from now at least: a later end stays, up to ttl from now; mode and segments (of a
--   lock owner: start, end, mode, …) that its mount believes in
-- → 1, or 0 if it does not hold (any more), or 2 if it holds in another mode, or not all of the segments: what was changed
--   since is lost with a failed server, and others may hold beside it; or 4 if the server is in a grace period and does
--   not have the ticket: its mount did not know of the grace period yet, and must restore the ticket

-- Whether all that is wanted is among what is held, which may be more, or exclusive where shared is wanted.
local function covers(held, wanted)
  local j = 1
  for i = 1, #wanted, 3 do
    local at = wanted[i]
    while at do
      while held[j] and held[j + 1] < at do j = j + 3 end
      if not held[j] or held[j] > at or held[j + 2] > wanted[i + 2] then return false end
      at = held[j + 1] < wanted[i + 1] and step(held[j + 1], 1)
    end
  end
  return true
end

local function left_after(left) return math.max(a.left, math.min(left, a.ttl)) end

if is_uncontended(id) then
  if not is_of(uncontended) then return 0 end
  if a.mode ~= 0 then return 2 end
  uncontended.l = a.ttl
  keep_uncontended(left_after(uncontended_left()))
  return 1
end
local t = load(id)
if t and not is_of(t) then return 0 end
if t and (not t.p and t.x ~= a.mode or a.segments and not covers(t.s or WHOLE[t.x], a.segments)) then return 2 end
local deadline = t and call('ZSCORE', TERM, id)
local left = left_after(deadline and deadline - now or 0)
-- of a full server: a write that it permits goes first
if sequence then
  call('ZREM', WAITERS, '')
elseif t then
  local has = redis.pcall('GET', L)
  if has == id then
    call('PEXPIRE', L, number_text(left + t.d))
  elseif has == SHARED then
    call('PEXPIRE', L, number_text(math.max(left + t.d, call('PTTL', L))))
  end
end
expire()
if not t or not call('ZSCORE', ORDER, id) or waits(id) then
  if not t and call('ZSCORE', ORDER, id) and drop(id) then vacate(0) end -- what INFO said of it was deleted
  grant()
  finish()
  return closed and not t and 4 or 0
end
call('ZADD', TERM, number_text(now + left), id)
t.l = a.ttl
save(id, t)
finish()
return 1
