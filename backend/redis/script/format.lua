-- format: the format number of the data, see backend/format.h.  Stands before enter.lua, meet.lua, and greet.lua of redlock.
--
-- STORE is a hash.  Its field `format` has `NUMBER VERSION HOST` of the mount that wrote the format number.  On a single server
-- each mount has a field, too, with its name: `NUMBER VERSION HOST CHANNEL since TIME`, where TIME is the server's time when
-- the mount began, in ms.  `about` is `NUMBER VERSION HOST` of this mount.

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
