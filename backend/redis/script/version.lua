-- version: whether the server has what it had when this mount last looked; see enter.lua.  Stands behind head.lua in
-- each script that changes a lock; in release.lua, renew.lua and set.lua behind the short way, which
-- grants nothing.
--
-- KEYS, the last two: RECLAIMED, VERSION.  ARGV 2: the version that the mount knows.  term: that of what is asked for, if
-- it is renewable
local VERSION, RECLAIMED = table.remove(KEYS), table.remove(KEYS)
local marker = call('MGET', VERSION, FENCE)
local version, life, state, longest = (marker[1] or ''):match('^(%x+) (%S+) (%a) (%d+)$')
if version ~= ARGV[2] then return redis.error_reply('VERSION leasefs: the server has forgotten what this mount knows') end
closed = state == 'c'
fence, fence_of = marker[2], marker[2] and FENCE
if a.term and a.term > tonumber(longest) then -- a full server may refuse: then until the next renewal
  redis.pcall('SET', VERSION, version .. ' ' .. life .. ' ' .. state .. ' ' .. number_text(a.term))
end
