-- recover: gives a lock of the daemon before another token.  Once a majority has it, no request of that daemon, which names
-- the former token, changes the lock.
--
-- KEYS 5: NOTES
-- ARGV: the former token, the new one; the note with each, and its score
-- → {'ok', number, kind, age, ttl, time left, revision, meta, content} | {'gone'}
local NOTES = KEYS[5]
local former, token, former_note, note, score = unpack(ARGV)
local value = holder()
local r = call('HMGET', RECORD, 'token', 'number', 'kind', 'since', 'ttl', 'revision', 'meta', 'content')
call('ZREM', NOTES, former_note)
if (value ~= former and value ~= token) or r[1] ~= value then return {'gone'} end
local left = call('PTTL', L)
if value == former then
  call('SET', L, token, 'PX', left)
  call('HSET', RECORD, 'token', token)
  call('ZADD', NOTES, score, note)
  call('PEXPIRE', NOTES, NUMBER_KEPT)
end
return {'ok', r[2], r[3], text(now - r[4]), r[5], left, r[6], r[7], r[8]}
