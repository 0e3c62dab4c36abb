-- meet: whether a daemon may mount, or which mount or number is in its way.  It changes no key.
--
-- A mount without a format number has a channel of 16 hexadecimal digits; others have an m for the first.  What 0.1.0 keeps
-- of a directory is found by the name of its key, and that such a mount is there by its channel.  Mounts of several
-- servers (redlock) share a channel, and those without a number have had another.
--
-- KEYS: STORE; TERMS; the list of names in the root, as 0.1.0 named it; these two are not looked at if there is:
-- ARGV: how the mount describes itself; the channel that mounts without a number share, or ''
-- → {'newer', `NUMBER VERSION HOST`} | {'unnumbered', channel} | {}
local STORE, TERMS, NAMES = unpack(KEYS)
local about, shared = unpack(ARGV)
local call = redis.call

local function is_unnumbered(channel) return channel and #channel == 20 and channel:match('^lfs:%x+$') end

local function find_unnumbered()
  if shared ~= '' then return call('PUBLISH', shared, 'n') > 0 and shared end
  local terms = redis.pcall('ZRANGE', TERMS, 0, -1)
  for _, text in ipairs(terms) do
    local channel = text:match('^%S+')
    if is_unnumbered(channel) and call('PUBLISH', channel, 'n') > 0 then return channel end
  end
  local channels = call('EXISTS', NAMES) == 1 and redis.pcall("PUBSUB", 'CHANNELS', 'lfs:*') -- may not be permitted
  for _, channel in ipairs(channels or {}) do
    if is_unnumbered(channel) then return channel end
  end
end

local newer = find_newer_format(STORE, about)
if newer then return {'newer', newer} end
local unnumbered = find_unnumbered()
return unnumbered and {'unnumbered', unnumbered} or {}
