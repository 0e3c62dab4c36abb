-- stat: what is known of a name.  Changes nothing.
--
-- leaf; root: it is that of the root; no_directory: it was none a moment ago
-- KEYS 12: WAITERS of the name as a directory; 13..16: ORDER, TERM, INFO, WAIT of the directory's queue, where the leaf may
--       be one of its names
-- → {'lock', describe…, content, holders, waiters, position} | {'directory', ttl, width, delay, sequence, meta,
--   waiters} | {'nothing', waiters}
local function of_lock(id, holders, waiters, position)
  local d = describe(id)
  d[#d + 1] = id ~= '' and (call('HGET', INFO, 'c:' .. id) or ''):sub(1, 65536) or '' -- whoever wrote it
  for _, x in ipairs({holders, waiters, position}) do d[#d + 1] = x end
  return {'lock', unpack(d)}
end

local of_self = a.no_directory and {} or call('HMGET', SELF, 'ttl', 'width', 'delay', 'sequence', 'meta', 'made')
if a.root or of_self[6] then
  return {
    'directory', of_self[1] or '0', of_self[2] or '1', of_self[3] or '0', of_self[4] or '0', of_self[5] or '',
    call('ZCOUNT', KEYS[12], number_text(now), '+inf'),
  }
end
look()
if uncontended then
  local left = uncontended_left()
  if left <= 0 then return {'nothing', 0} end
  return {
    'lock', uncontended.k, uncontended.x, uncontended.z, now - uncontended.a, left, uncontended.l, uncontended.i, uncontended.id, FIRST, LAST, uncontended.m,
    (uncontended.y or ''):sub(1, 65536), 1, 0, 0,
  }
end
if who == 'foreign' then return of_lock('', 1, waiting, 0) end
local dead = 0
for id in holders() do
  local deadline = call('ZSCORE', TERM, id)
  if who == 'ours' and deadline and tonumber(deadline) > now then return of_lock(id, tickets - waiting, waiting, 0) end
  dead = dead + 1
  if dead == 64 then break end
end
local id = KEYS[13] and call('HGET', KEYS[15], 's:' .. leaf)
if id then
  ORDER, TERM, INFO, WAIT = KEYS[13], KEYS[14], KEYS[15], KEYS[16]
  local deadline = call('ZSCORE', TERM, id)
  if deadline and tonumber(deadline) > now then
    local number, waiters = call('ZSCORE', ORDER, id) or '0', call('ZRANK', WAIT, id)
    local position -- those that hold come first
    if waiters then
      position = call('ZCARD', ORDER) - call('ZCARD', WAIT) + waiters
    else
      position = (call('ZRANK', ORDER, id) or 0) - call('ZCOUNT', WAIT, '-inf', '(' .. number)
    end
    return of_lock(id, waiters and 0 or 1, 0, position)
  end
end
return {'nothing', waiting}
