-- mine: a part of a mount's notes (MINE of head.lua), or removes a note.
--
-- KEYS: MINE
-- ARGV: 'part', the last note of the part before and its score ('' and '': there is none), and how many notes to return;
--       or 'remove' and a note
-- → {'notes', note, score, …} | {'ok'}
--
-- A part begins behind a note, not at a rank, because notes are added and removed between two parts.
local MINE, call = KEYS[1], redis.call
local command, note, score, count = unpack(ARGV)
if command == 'remove' then
  call('ZREM', MINE, note)
  return {'ok'}
end
local first = 0
if score ~= '' then
  local rank = call('ZRANK', MINE, note)
  if rank then
    first = rank + 1
  else
    call('ZADD', MINE, score, note)
    first = call('ZRANK', MINE, note)
    call('ZREM', MINE, note)
  end
end
local part = call('ZRANGE', MINE, first, first + count - 1, 'WITHSCORES')
table.insert(part, 1, 'notes')
return part
