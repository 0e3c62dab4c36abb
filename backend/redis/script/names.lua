-- names: finds which of the names that a directory lists are there, and removes the others from the list.
--
-- KEYS: LIST, TERM and INFO of the directory's queue, then for each name the key of a lock and that of a directory
-- names
-- → for each 1: a directory, 2: a lock, 0: a lock that nobody holds but that is refused still, -1: nothing
local a = cmsgpack.unpack(ARGV[1])
local LIST, TERM, INFO = unpack(KEYS, 1, 3)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function type_of(name, L, DIR)
  if redis.pcall('HEXISTS', DIR, 'made') == 1 then return 1 end
  local value = redis.pcall('GET', L) -- what is no string is held, too
  if value then return value ~= 'leasefs:delay' and 2 or 0 end
  local ticket = redis.pcall('HGET', INFO, 's:' .. name)
  local deadline = type(ticket) == 'string' and redis.pcall('ZSCORE', TERM, ticket)
  if type(deadline) == 'string' and tonumber(deadline) > now then return 2 end
  redis.pcall('ZREM', LIST, name) -- a server that may not be written to keeps it
  return -1
end

local types = {}
for i, name in ipairs(a.names) do types[i] = type_of(name, KEYS[2 * i + 2], KEYS[2 * i + 3]) end
return types
