-- release_range: gives back a part of what a lock owner holds.
--
-- leaf, sequence, mount; owner: the lock owner, with start and finish of the range
-- → 'ok'
call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
expire()
local found = {}

-- One that is not claimed yet waits, to its mount.
local function is_theirs(t) return t and t.c and t.m == a.mount and t.p == a.owner end

local noted = tickets > 0 and call('HGET', INFO, owner_key(a.mount, a.owner))
if noted and not waits(noted) and is_theirs(load(noted)) then
  found[1] = noted
else
  for id in holders() do
    if is_theirs(load(id)) then found[#found + 1] = id end
  end
end
for _, id in ipairs(found) do
  local t = load(id)
  local left = replace(t.s, a.start, a.finish, nil)
  if #left > 3 * SEGMENTS_MAX then return refuse('too many byte ranges of one process') end
  if #left == 0 then
    if drop(id, t) then vacate(0) end
  else
    t.s = left
    set_mode(t)
    forget_undone(t, a.start, a.finish)
    if partial(t) and not pairwise then set_pairwise() end
    forget_looks()
    save(id, t)
    hold(id, t, tonumber(call('ZSCORE', TERM, id)))
  end
end
grant()
finish()
return 'ok'
