-- release_lone: the short way of release.lua, of the only ticket of a lock.
--
-- Fields and results: see release.lua.
if not sequence and not a.why and redis.pcall('GET', L) == id and call('ZCARD', ORDER) == 1 then
  call('DEL', L, ORDER, TERM, INFO)
  call('ZREM', LIST, leaf)
  if a.lease then forget(id, {k = 1, f = a.path}) end
  return 1
end
