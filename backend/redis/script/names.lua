-- names: whether a name of a directory is there.  Stands before the scripts that
-- read a directory.
local STALE_MAX = 1000 -- names left over that one call removes; the mount asks again, the others are served before
local function too_stale() return redis.error_reply('TRYAGAIN leasefs: names that are left over are being removed') end

local before, behind, path -- of a lock's key, as redis_key.c makes it; set by the script

-- 1: a directory, 2: a lock, 0: a lock that nobody holds but that is refused
-- still, nil: nothing.  TERM and INFO are of the directory's queue.
local function type_of(name, TERM, INFO, now)
  local key = before .. path .. name .. behind
  if #name > 255 or name:find('[/%z]') or name == '' or name == '.' or name == '..' or key:sub(1, 4) == 'lfs:' then
    return nil -- no name that a mount can have
  end
  if redis.pcall('HEXISTS', 'lfs:d:' .. key, 'made') == 1 then return 1 end
  local value = redis.pcall('GET', key) -- what is no string is held, too
  if value then return value ~= 'leasefs:delay' and 2 or 0 end
  local ticket = redis.pcall('HGET', INFO, 's:' .. name)
  local deadline = type(ticket) == 'string' and redis.pcall('ZSCORE', TERM, ticket)
  if type(deadline) == 'string' and tonumber(deadline) > now then return 2 end
  return nil
end
