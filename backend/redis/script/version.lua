-- version: whether the server has what it had when this mount last looked; see enter.lua.  Stands in each script that
-- changes a lock; in release.lua, renew.lua and set.lua behind the short way, which grants nothing.
--
-- KEYS, the last: VERSION.  ARGV, the last: the version that the mount knows; 2, if there is another: the term of what is
-- asked for, if it is renewable, else 0
local VERSION = table.remove(KEYS)
local marker = call('MGET', VERSION, KEYS[6])
local version, state, longest = (marker[1] or ''):match('^(%x+) (%a) (%d+) ')
if version ~= ARGV[#ARGV] then return redis.error_reply('VERSION leasefs: the server has forgotten what this mount knows') end
closed = state == 'c'
fence, fence_of = marker[2], marker[2] and KEYS[6]
local term = #ARGV > 2 and tonumber(ARGV[2]) or 0
if term > tonumber(longest) then -- a full server may refuse: then until the next renewal
  redis.pcall('SET', VERSION, version .. ' ' .. state .. ' ' .. ARGV[2] .. marker[1]:match(' %S+$'))
end
