-- release_lone: the short way of release.lua, of a lock that is held by one alone.
--
-- ARGV 3.., where it may be: ticket, leaf, and what MINE has of it ('': nothing).  Results: see release.lua.
local has = #ARGV > 2 and call('MGET', KEYS[1])[1]
if has and has:sub(1, #LONE + 32) == LONE .. ARGV[3] then
  call('DEL', KEYS[1])
  call('SET', KEYS[6], has:match('^%d+', #LONE + 33), 'PX', FENCE_KEPT)
  call('ZREM', KEYS[8], ARGV[4])
  if ARGV[5] ~= '' then redis.pcall('SREM', KEYS[11], ARGV[5]) end
  return 1
end
