-- release_lone: the short way of release.lua, of a lock that is held by one alone.
--
-- Fields and results: see release.lua.
local has = not sequence and not a.why and redis.pcall('GET', L)
if type(has) == 'string' and has:sub(1, #LONE + #id) == LONE .. id then
  call('DEL', L)
  set_number(cmsgpack.unpack(has:sub(#LONE + #id + 1)).z)
  call('ZREM', LIST, leaf)
  if a.lease then redis.pcall('SREM', MINE, id .. ' l ' .. a.path) end
  return 1
end
