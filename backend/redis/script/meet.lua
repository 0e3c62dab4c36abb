-- meet: whether a daemon may mount, or which mount or number is in its way.  It changes no key.
--
-- A mount without a format number has a channel of 16 hexadecimal digits; others have an m for the first.  What 0.1.0 keeps
-- of a directory is found by the name of its key, and that such a mount is there by its channel.
--
-- KEYS: STORE; TERMS; the list of names in the root, as 0.1.0 named it
-- ARGV: the format number of the daemon
-- → {'newer', `NUMBER VERSION HOST`} | {'unnumbered', channel} | {}
local STORE, TERMS, NAMES = unpack(KEYS)
local call = redis.call

local function is_unnumbered(channel) return channel and #channel == 20 and channel:match('^lfs:%x+$') end

local newer = find_newer_format(STORE, tonumber(ARGV[1]))
if newer then return {'newer', newer} end
local terms = redis.pcall('ZRANGE', TERMS, 0, -1)
for _, text in ipairs(terms) do
  local channel = text:match('^%S+')
  if is_unnumbered(channel) and call('PUBLISH', channel, 'n') > 0 then return {'unnumbered', channel} end
end
if NAMES and call('EXISTS', NAMES) == 1 then
  local channels = redis.pcall("PUBSUB", 'CHANNELS', 'lfs:*') -- may not be permitted
  for _, channel in ipairs(channels) do
    if is_unnumbered(channel) then return {'unnumbered', channel} end
  end
end
return {}
