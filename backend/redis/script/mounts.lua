-- mounts: the mounts that are there, of those that STORE knows.  Changes nothing.
--
-- A mount is there while somebody listens to its channel.
--
-- KEYS: STORE (see format.lua)
-- → {'mounts', a text as backend_mounts has it}; {'unsupported'}: this user may not read them
local notes = redis.pcall("HGETALL", KEYS[1])
if notes.err then return {'unsupported'} end
local clock = redis.call('TIME')
local now, text = clock[1] * 1000 + math.floor(clock[2] / 1000), ''
for i = 2, #notes, 2 do
  local version, host, channel, since = notes[i]:match('^%d+ (%S+) (%S+) (%S+)(.*)$')
  if channel and redis.call('PUBLISH', channel, 'n') > 0 then
    since = tonumber(since:match('^ since (%d+)$'))
    text = text .. version .. '\t' .. host .. '\t' .. (since and string.format('%.0f', math.max(now - since, 0)) or '-') .. '\n'
  end
end
return {'mounts', text}
