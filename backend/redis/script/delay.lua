-- delay: tells locks the lock-delay that their directory has now, where it was set after they were taken, or asked for.
--
-- KEYS: those of head.lua, of one lock after the other
-- leaves: theirs
-- → 'ok'
local delay = tonumber(call('HGET', DIR, 'delay') or 0)

local function heed()
  call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
  look()
  if uncontended then
    local left = uncontended_left()
    if uncontended.d == delay or left <= 0 then return end -- or it is lost, and the delay runs that there was then
    uncontended_head, uncontended.d = uncontended_head:match('^(.* )%d+ $') .. number_text(delay) .. ' ', delay
    keep_uncontended(left)
    return
  end
  expire()
  heed_delay(delay)
  grant()
  finish()
end

for i, name in ipairs(a.leaves) do
  L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF, MINE = unpack(KEYS, i * 11 - 10, i * 11)
  leaf = name
  local done, err = pcall(heed)
  local refused = not done and tostring(type(err) == 'table' and err.err or err):match('%u%u%u+')
  if refused and refused ~= 'WRONGTYPE' then error(err) end -- of keys that are damaged hears who uses that lock
end
return 'ok'
