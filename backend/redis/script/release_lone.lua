-- release_lone: the short way of release.lua, of the only ticket of a lock.
--
-- ARGV and results: see release.lua.
local _, _, id, why, identity, path = unpack(ARGV)
if not sequence and why == '' and redis.pcall('GET', L) == id and call('ZCARD', ORDER) == 1 then
  call('DEL', L, ORDER, TERM, INFO)
  call('ZREM', LIST, leaf)
  if identity ~= '' then forget(id, {k = 1, b = identity, f = path}) end
  return 1
end
