-- stat_directory: the short way of stat.lua, of a directory in which nobody waits.  Changes nothing.
--
-- KEYS: DIR, WAITERS
-- → {'directory', …}, as stat.lua, or nil: send that one
local d = redis.call('HMGET', KEYS[1], 'ttl', 'width', 'delay', 'sequence', 'meta', 'made')
if d[6] and redis.call('EXISTS', KEYS[2]) == 0 then
  return {'directory', d[1] or '0', d[2] or '1', d[3] or '0', d[4] or '0', d[5] or '', 0}
end
