-- directory: makes, removes or changes one.
--
-- leaf, sequence (its queue is what is granted), what: 'make', 'remove' or 'set'; needed: the parent must exist; root: it
-- is that; ttl, width, delay, next: the number of its next sequence ticket, meta; nonce of the request (a repetition has
-- the same)
-- KEYS 1: the key of the lock of that name; 2..6 the queue of the directory; 7: the directory; 8: its LIST;
--      9: its WAITERS; 10: its parent; 12: the parent's LIST; 13: the key of a lock of the parent's name
-- → 'ok' | 'delayed': the same, and the locks in it must get its delay | 'exists' | 'missing' | 'notempty' | 'notdirectory'
local PARENT, NAMES, PARENT_L = KEYS[10], KEYS[12], KEYS[13]

local function write(made)
  local last = tonumber(call('HGET', DIR, 'sequence') or 0)
  call('HSET', DIR, 'ttl', a.ttl, 'width', a.width, 'delay', a.delay, 'sequence', number_text(math.max(last, a.next)),
    'meta', a.meta, 'made', made)
  if a.delay > 0 then call('HSET', DIR, 'delays', 1) end -- it has one, or had one
end

local function is_lock() return redis.pcall('EXISTS', L) == 1 or call('EXISTS', ORDER) == 1 end

local made = call('HGET', DIR, 'made')
if a.what == 'make' then
  if a.needed and call('HEXISTS', PARENT, 'made') == 0 then
    return redis.pcall('EXISTS', PARENT_L) == 1 and 'notdirectory' or 'missing'
  end
  if a.root then return 'exists' end
  if made then return made == a.nonce and 'ok' or 'exists' end
  if is_lock() then return 'exists' end
  write(a.nonce)
  call('ZADD', NAMES, 0, leaf)
  return 'ok'
end
if not a.root and not made then return is_lock() and 'notdirectory' or 'missing' end
if a.what == 'remove' then
  if call('ZCARD', LIST) > 0 then return 'notempty' end -- names that are left over are removed by who lists it
  call('DEL', DIR, LIST, WAITERS, ORDER, TERM, WAIT, INFO)
  call('ZREM', NAMES, leaf)
  return 'ok'
end
write(made or 'root')
expire()
local delays = call('HEXISTS', DIR, 'delays') == 1
if delays then heed_delay(a.delay) end
grant()
finish()
return delays and 'delayed' or 'ok'
