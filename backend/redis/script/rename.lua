-- rename: moves a ticket that holds to another name, which must be free, or held by
-- the ticket that it replaces and no other.  Waiters for it go on waiting.
--
-- leaf, ticket, new_leaf, path: the new name; needed: its directory must exist; replaced: a ticket
-- KEYS 12..22: as 1..11, of the new name; 23: INFO of the new directory's queue, where the leaf may be a name in it
-- → {'ok', number} | {'busy'} | {'stale'} | {'missing'} | {'directory'} | {'invalid'} | {'grace'}: see acquire.lua
expire()
local t = tickets > 0 and load(id)
local new = {unpack(KEYS, 12, 22)}
if a.needed and call('EXISTS', new[7]) == 0 then return {'missing'} end
if t and t.n then return {'invalid'} end
if new[1] == L then return t and not waits(id) and {'ok', call('ZSCORE', ORDER, id)} or {'stale'} end
if t and not is_of(t) then return {'stale'} end
if not t then
  local moved = call('ZSCORE', new[2], id) -- a repetition
  return moved and {'ok', moved} or {'stale'}
end
if waits(id) then return {'stale'} end
if call('EXISTS', new[10]) == 1 then return {'directory'} end
if KEYS[23] and call('HEXISTS', KEYS[23], 's:' .. a.new_leaf) == 1 then return {'busy'} end

local content, deadline = call('HGET', INFO, 'c:' .. id), tonumber(call('ZSCORE', TERM, id))
local old = {L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF}
local function turn(keys, name)
  L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF = unpack(keys)
  leaf = name
end

grant()
finish()
local first_leaf, past = leaf, last_number()
turn(new, a.new_leaf)
expire()
grant()
local over = who == 'ours' and tickets - waiting == 1 and a.replaced and call('ZSCORE', ORDER, a.replaced) and not waits(a.replaced)
if not over and (closed or tickets > 0 or who ~= 'free') then
  local nobody = closed and tickets == 0 and who == 'free'
  finish()
  return {nobody and 'grace' or 'busy'}
end
local number = math.max(next_number(), past + 1)
set_number(number_text(number))
if over then drop(a.replaced, load(a.replaced)) end
tickets = tickets + 1
local old_path = t.f
t.f = a.path
remember(id, t)
t.d = tonumber(call('HGET', DIR, 'delay') or 0)
call('ZADD', ORDER, number_text(number), id)
call('ZADD', TERM, number_text(deadline), id)
call('ZADD', LIST, '0', leaf)
save(id, t)
if content then call('HSET', INFO, 'c:' .. id, content) end
if partial(t) then set_pairwise() end
hold(id, t, deadline)
if waiting > 0 then -- with numbers before this one, and another deadline in mind
  call('HSET', INFO, 'top', number_text(number))
  tell(t, 'w', id)
  tell_delay(1)
end
finish()

turn(old, first_leaf)
look()
t.f = old_path
drop(id, t)
vacate(0)
grant()
finish()
return {'ok', number_text(number)}
