-- notes: a part of a mount's notes (NOTES of head.lua), or removes a note.
--
-- KEYS: NOTES
-- ARGV: 'part', the last note of the part before and its score ('' and '': there is none), and how many notes to return;
--       or 'remove' and a note
-- → {'notes', note, score, …} | {'ok'}
--
-- A part begins behind a note, not at a rank, because notes are added and removed between two parts.
local NOTES, call = KEYS[1], redis.call
local command, note, score, count = unpack(ARGV)
if command == 'remove' then
  call('ZREM', NOTES, note)
  return {'ok'}
end
local first = 0
if score ~= '' then
  local rank = call('ZRANK', NOTES, note)
  if rank then
    first = rank + 1
  else
    call('ZADD', NOTES, score, note)
    first = call('ZRANK', NOTES, note)
    call('ZREM', NOTES, note)
  end
end
local part = call('ZRANGE', NOTES, first, first + count - 1, 'WITHSCORES')
table.insert(part, 1, 'notes')
return part
