-- look: reads a name.  Changes nothing.
--
-- KEYS 5: DIR of the name; ARGV: root ('1': the name is the root)
-- → {'held', …} | {'directory', made, ttl, revision, meta} | {'nothing'}
local d = call('HMGET', KEYS[5], 'made', 'ttl', 'revision', 'meta')
if d[1] or ARGV[1] == '1' then return {'directory', d[1] or '', d[2] or '0', d[3] or '0', d[4] or ''} end
local value = holder()
return value and held(value) or {'nothing'}
