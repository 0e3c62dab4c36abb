-- revoke: ends holders, whoever they are.
--
-- leaf, mount, request: its number; fence (none: all); word: of the meta, that is to be text
-- KEYS 12..16: ORDER, TERM, INFO, WAIT, FENCE of the directory's queue, where the leaf may be one of its names
-- → {'ok', how many other mounts will say that they have heard, tickets of this mount that ended…}
--   | 'stale' | 'missing' | 'directory' | 'busy': not all that would end are so
local only

local function matches(t)
  local at = 0
  for text in t.i:gmatch('%S+') do
    at = at + 1
    if at == a.word then return text == a.text end
  end
  return not a.word
end

if call('EXISTS', SELF) == 1 then return 'directory' end
if KEYS[12] then
  only = call('HGET', KEYS[14], 's:' .. leaf)
  if only then
    sequence = true
    ORDER, TERM, INFO, WAIT, FENCE = unpack(KEYS, 12, 16)
  end
end
call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
expire()
local found, held, delay = false, false, 0
local denied = a.word and who == 'foreign' and not a.fence
local result, others = {'ok', 0}, {}
local ends = {}
local function consider(id, at)
  held = true
  local t = (not a.fence or at == a.fence) and load(id)
  if t then
    ends[#ends + 1] = {id, t}
    denied = denied or not matches(t)
  end
end
if only then
  local at = call('ZSCORE', ORDER, only)
  if at then consider(only, at) end
else
  for id, at in holders() do consider(id, number_text(at)) end
end
for _, e in ipairs(denied and {} or ends) do
  local id, t = unpack(e)
  found = true
  if t.m == a.mount then result[#result + 1] = id else others[t.m] = true end
  if not a.fence then
    delay = math.max(delay, lose(id, t, 'broken', now))
  else
    drop(id, t)
    tell(t, 'e', id, ' released')
  end
end
if found then
  vacate(delay)
  tell_delay(delay)
elseif who == 'foreign' and not a.fence and not denied then
  found = true
  call('DEL', L)
  who, value = 'free', false
end
grant()
finish()
for other in pairs(others) do result[2] = result[2] + call('PUBLISH', other, 's ' .. a.mount .. ' ' .. a.request) end
if denied then return 'busy' end
return found and result or (held or who == 'foreign') and 'stale' or 'missing'
