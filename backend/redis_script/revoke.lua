-- revoke: ends holders, whoever they are.
--
-- ARGV: leaf, sequence, fence (0: all), mount, number of the request
-- KEYS 11..14: ORDER, TERM, INFO, WAIT of the directory's queue, where the leaf may be one of its names
-- → {'ok', how many other mounts will say that they have heard, tickets of this mount that ended…}
--   | 'stale' | 'missing' | 'directory'
local fence, mount, number = ARGV[3], ARGV[4], ARGV[5]
local only
if call('EXISTS', SELF) == 1 then return 'directory' end
if KEYS[11] then
  only = call('HGET', KEYS[13], 's:' .. leaf)
  if only then
    sequence = true
    ORDER, TERM, INFO, WAIT = KEYS[11], KEYS[12], KEYS[13], KEYS[14]
  end
end
call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
expire()
local all, found, held, delay = each(), false, false, 0
local result, others = {'ok', 0}, {}
for i = 1, #all, 2 do
  local id = all[i]
  if only == id or not only and not waits(id) then
    local t = load(id)
    if t and (t.n or not sequence) then
      held = true
      if fence == '0' or all[i + 1] == fence then
        found = true
        if t.m == mount then result[#result + 1] = id else others[t.m] = true end
        if fence == '0' then
          delay = math.max(delay, lose(id, t, 'broken', now))
        else
          drop(id, t)
          tell(t, 'e', id, ' released')
        end
      end
    end
  end
end
if found then
  vacate(delay)
  tell_delay(delay)
elseif who == 'foreign' and fence == '0' then
  found = true
  call('DEL', L)
  who, value = 'free', false
end
grant()
finish()
for other in pairs(others) do result[2] = result[2] + call('PUBLISH', other, 's ' .. mount .. ' ' .. number) end
return found and result or (held or who == 'foreign') and 'stale' or 'missing'
