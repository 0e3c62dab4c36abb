-- release_lone: the short way of release.lua, of a lock that is held by one alone.
--
-- Fields and results: see release.lua.
local noted = not sequence and not a.why and call('MGET', L, FENCE)
local has = noted and noted[1]
if has and has:sub(1, #LONE + #id) == LONE .. id then
  call('DEL', L)
  set_number((noted[2] or ''):match('^%d+') or cmsgpack.unpack(has:sub(#LONE + #id + 1)).z)
  call('ZREM', LIST, leaf)
  if a.lease then redis.pcall('SREM', MINE, id .. ' l ' .. a.path) end
  return 1
end
