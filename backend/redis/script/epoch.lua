-- epoch: whether the server has what it had when this mount last looked; see enter.lua.  Stands in each script that
-- changes a lock; in release.lua, renew.lua and set.lua behind the short way, which grants nothing.
--
-- KEYS, the last: VERSION.  ARGV, the last: the version that the mount knows
local VERSION = table.remove(KEYS)
local marker = call('MGET', VERSION, KEYS[6])
local version, state = (marker[1] or ''):match('^(%x+) (%a) ')
if version ~= ARGV[#ARGV] then return redis.error_reply('VERSION leasefs: the server has forgotten what this mount knows') end
closed = state == 'c'
fence, fence_of = marker[2], marker[2] and KEYS[6]
