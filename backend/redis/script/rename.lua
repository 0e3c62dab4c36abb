-- rename: moves a ticket that holds to another name, which must be free, or held by
-- the ticket to be replaced and no other.  Who waits for it goes on waiting.
--
-- ARGV: leaf, sequence, ticket, new leaf, the new name's directory must exist (1/0), new name, ticket to be replaced ('')
-- KEYS 11..20: as 1..10, of the new name; 21: INFO of the new directory's queue, where the leaf may be a name in it
-- → {'ok', number} | {'busy'} | {'stale'} | {'missing'} | {'directory'} | {'invalid'}
local _, _, id, new_leaf, needed, new_path, replaced = unpack(ARGV)
expire()
local t = tickets > 0 and load(id)
local new = {unpack(KEYS, 11, 20)}
if needed == '1' and call('EXISTS', new[7]) == 0 then return {'missing'} end
if t and t.n then return {'invalid'} end
if new[1] == L then return t and not waits(id) and {'ok', call('ZSCORE', ORDER, id)} or {'stale'} end
if not t then
  local moved = call('ZSCORE', new[2], id) -- a repetition
  return moved and {'ok', moved} or {'stale'}
end
if waits(id) then return {'stale'} end
if call('EXISTS', new[10]) == 1 then return {'directory'} end
if KEYS[21] and call('HEXISTS', KEYS[21], 's:' .. new_leaf) == 1 then return {'busy'} end

local content, deadline = call('HGET', INFO, 'c:' .. id), tonumber(call('ZSCORE', TERM, id))
local old = {L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF}
local function turn(keys, name)
  L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF = unpack(keys)
  leaf = name
end

grant()
finish()
local first_leaf, past = leaf, tonumber(call('GET', FENCE) or 0)
turn(new, new_leaf)
expire()
grant()
local over = who == 'ours' and tickets - waiting == 1 and call('ZSCORE', ORDER, replaced) and not waits(replaced)
if not over and (tickets > 0 or who ~= 'free') then
  finish()
  return {'busy'}
end
local number = math.max(next_number(), past + 1)
call('SET', FENCE, number_text(number), 'PX', FENCE_KEPT)
if over then drop(replaced, load(replaced)) end
tickets = tickets + 1
local old_path = t.f
t.f = t.b and new_path
t.d = tonumber(call('HGET', DIR, 'delay') or 0)
call('ZADD', ORDER, number_text(number), id)
call('ZADD', TERM, number_text(deadline), id)
call('ZADD', LIST, 0, new_leaf)
save(id, t)
remember(id, t)
if content then call('HSET', INFO, 'c:' .. id, content) end
if partial(t) then set_odd() end
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
