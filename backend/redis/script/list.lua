-- list: names of a directory that are there, in order.
--
-- KEYS: LIST, DIR, TERM and INFO of the directory's queue, the key of a lock of its name
-- after, max; needed: it must exist; before and behind a name in its key, path: the directory's, with a slash
-- → {'missing'} | {'notdirectory'} | {'ok', name, type (1 directory, 2 lock), …}
local LIST, DIR, TERM, INFO, L = unpack(KEYS)
local a = cmsgpack.unpack(ARGV[1])
before, behind, path = a.before, a.behind, a.path
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

if a.needed and call('EXISTS', DIR) == 0 then
  return {redis.pcall('EXISTS', L) == 1 and 'notdirectory' or 'missing'}
end
local result, count, stale = {'ok'}, 0, 0
local from = a.after == '' and '-' or '(' .. a.after
while count < a.max do
  local names = call('ZRANGEBYLEX', LIST, from, '+', 'LIMIT', 0, 128)
  if #names == 0 then break end
  for _, name in ipairs(names) do
    local type = type_of(name, TERM, INFO, now)
    if type == nil then
      -- left by a mount that died; a server that may not be written to keeps it
      if redis.pcall('ZREM', LIST, name) == 1 then stale = stale + 1 end
    elseif type > 0 and count < a.max then
      result[#result + 1] = name
      result[#result + 1] = type
      count = count + 1
    end
  end
  if stale >= STALE_MAX then return too_stale() end
  from = '(' .. names[#names]
end
return result
