-- mine: a part of a mount's notes (MINE of head.lua), or removes a note.
--
-- KEYS: MINE
-- ARGV: the first and the last, from 0; or a note to remove, and ''
-- → {'notes', note, score, …} | {'ok'}
local first, last = ARGV[1], ARGV[2]
if last == '' then
  redis.call('ZREM', KEYS[1], first)
  return {'ok'}
end
local part = redis.call('ZRANGE', KEYS[1], first, last, 'WITHSCORES')
table.insert(part, 1, 'notes')
return part
