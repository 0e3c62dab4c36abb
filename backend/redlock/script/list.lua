-- list: names in a directory, in order.  Removes names whose locks have expired from LIST.
--
-- KEYS: LIST and DIR of the directory, and the key of a lock with its name
-- ARGV: after, max, root; the parts of a lock's key before and behind the name
-- → {'names', name…} | {'missing'} | {'notdirectory'}
local LIST, DIR, L = unpack(KEYS)
local after, max, root, before, behind = unpack(ARGV)
local call = redis.call
if root ~= '1' and call('EXISTS', DIR) == 0 then return {call('EXISTS', L) == 1 and 'notdirectory' or 'missing'} end
local answer = {'names'}
local from = after == '' and '-' or '(' .. after
repeat
  local part = call('ZRANGEBYLEX', LIST, from, '+', 'LIMIT', 0, max)
  for _, name in ipairs(part) do
    from = '(' .. name
    local key = before .. name .. behind
    if call('EXISTS', 'lfs:D:' .. key) == 1 then
      answer[#answer + 1] = name .. '/'
    elseif call('EXISTS', key) == 1 then
      answer[#answer + 1] = name
    else
      redis.pcall('ZREM', LIST, name)
    end
  end
until #part < tonumber(max) or #answer > tonumber(max)
return answer
