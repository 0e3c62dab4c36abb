-- tickets: those of a directory's queue, in the order of their names.  Changes nothing.
--
-- KEYS: LIST, TERM, WAIT and INFO of the directory's queue
-- after, max
-- → {the last name that was looked at ('': that was all), name, ticket, waits (1/0), age, meta, …}
local a = cmsgpack.unpack(ARGV[1])
local LIST, TERM, WAIT, INFO = unpack(KEYS)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local names = redis.call('ZRANGEBYLEX', LIST, a.after == '' and '-' or '(' .. a.after, '+', 'LIMIT', 0, a.max)
local result, fields = {#names == a.max and names[#names] or ''}, {}
for i, name in ipairs(names) do fields[i] = 's:' .. name end
local ids = #names > 0 and redis.call('HMGET', INFO, unpack(fields))
for i, name in ipairs(names) do
  local id = ids[i]
  local deadline = id and redis.call('ZSCORE', TERM, id)
  local packed = deadline and tonumber(deadline) > now and redis.call('HGET', INFO, id)
  if packed then
    local t = cmsgpack.unpack(packed)
    local waits = redis.call('ZSCORE', WAIT, id) and 1 or 0
    for _, x in ipairs({name, id, waits, now - t.a, t.i}) do result[#result + 1] = x end
  end
end
return result
