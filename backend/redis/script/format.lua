-- format: the format number of the data, see backend/format.h.  Stands before enter.lua, meet.lua, and greet.lua of redlock.
--
-- STORE is a hash: format -> `NUMBER VERSION HOST` of the mount that wrote the number; on one server, name of a mount -> the
-- same of that mount, its channel, and `since` with the server's time, in ms, when it began.  `about` is that of this mount.

-- What STORE says, if its number is higher than that of this mount.
local function find_newer_format(STORE, about)
  local made = redis.pcall('HGET', STORE, 'format') -- it may be of the wrong type
  local has = type(made) == 'string' and tonumber(made:match('^%d+'))
  return has and has > tonumber(about:match('^%d+')) and made
end

local function refuse_format(newer, about)
  local number, of, host = newer:match('^(%d+) (%S+) (.*)$')
  local known, version = about:match('^(%d+) (%S+)')
  return redis.error_reply('ERR its data have format version ' .. (number or newer) .. ' of leasefs ' .. (of or '?') .. ' on ' ..
    (host or '?') .. ', and leasefs ' .. version .. ' knows format versions up to ' .. known .. ': upgrade leasefs on this host')
end

-- A server that does not write says so when a lock needs it.
local function note_format(STORE, about)
  local made = redis.pcall('HGET', STORE, 'format')
  if type(made) == 'string' then return end
  redis.pcall('HDEL', STORE, '') -- a write that a full server permits, before one it would refuse
  if type(made) == 'table' then redis.pcall('DEL', STORE) end
  redis.pcall('HSET', STORE, 'format', about)
end
