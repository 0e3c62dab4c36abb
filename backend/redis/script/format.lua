-- format: the format number of the data, see backend/format.h.  Stands before enter.lua and meet.lua.
--
-- STORE is a hash: format -> `NUMBER VERSION HOST` of the mount that wrote the number; identity of a mount -> the same of
-- that mount, and its channel.

-- What STORE says, if its number is higher than that one.
local function find_newer_format(STORE, number)
  local made = redis.pcall('HGET', STORE, 'format') -- it may be of the wrong type
  local has = type(made) == 'string' and tonumber(made:match('^%d+'))
  return has and has > number and made
end
