-- directory: makes, removes or changes one.
--
-- ARGV: leaf, sequence (1: its queue is what is granted), what ('make', 'remove', 'set'), parent must exist (1/0),
--       root (1/0), ttl, width, delay, sequence number, meta, nonce of the request (a repetition has the same),
--       key before a name, key after it, the directory's path with a slash
-- KEYS 1: the key of the lock of that name; 2..6 the queue of the directory; 7: the directory; 8: its LIST;
--      9: its WAITERS; 10: its parent; 11: the parent's LIST; 12: the key of a lock of the parent's name
-- → 'ok' | 'exists' | 'missing' | 'notempty' | 'notdirectory'
local _, what, needed, root, ttl, wide, delay, number, meta, nonce
_, _, what, needed, root, ttl, wide, delay, number, meta, nonce, before, behind, path = unpack(ARGV)
local PARENT, NAMES, PARENT_L = KEYS[10], KEYS[11], KEYS[12]

local function write(made)
  local last = tonumber(call('HGET', DIR, 'sequence') or 0)
  call('HSET', DIR, 'ttl', ttl, 'width', wide, 'delay', delay, 'sequence', number_text(math.max(last, number)), 'meta',
    meta, 'made', made)
end

local function is_lock() return redis.pcall('EXISTS', L) == 1 or call('EXISTS', ORDER) == 1 end

local made = call('HGET', DIR, 'made')
if what == 'make' then
  if needed == '1' and call('HEXISTS', PARENT, 'made') == 0 then
    return redis.pcall('EXISTS', PARENT_L) == 1 and 'notdirectory' or 'missing'
  end
  if root == '1' then return 'exists' end
  if made then return made == nonce and 'ok' or 'exists' end
  if is_lock() then return 'exists' end
  write(nonce)
  call('ZADD', NAMES, 0, leaf)
  return 'ok'
end
if root == '0' and not made then return is_lock() and 'notdirectory' or 'missing' end
if what == 'remove' then
  local names = call('ZRANGE', LIST, 0, STALE_MAX - 1)
  for _, name in ipairs(names) do
    if type_of(name, TERM, INFO, now) then return 'notempty' end
    call('ZREM', LIST, name)
  end
  if #names == STALE_MAX then return too_stale() end
  call('DEL', DIR, LIST, WAITERS, ORDER, TERM, WAIT, INFO)
  call('ZREM', NAMES, leaf)
  return 'ok'
end
write(made or 'root')
expire()
grant()
finish()
return 'ok'
