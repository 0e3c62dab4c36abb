-- list: names that are noted in a directory, in order.  Some may be left over, by a mount that died: names.lua tells.
--
-- KEYS: LIST, DIR, the key of a lock of the directory's name
-- after, max; needed: it must exist
-- → {'missing'} | {'notdirectory'} | {'ok', the last that was looked at ('': that was all), name…}
local a = cmsgpack.unpack(ARGV[1])
local LIST, DIR, L = unpack(KEYS)

-- Whether a mount can have that name.
local function is_name(name) return #name <= 255 and not name:find('[/%z]') and name ~= '' and name ~= '.' and name ~= '..' end

if a.needed and redis.call('EXISTS', DIR) == 0 then
  return {redis.pcall('EXISTS', L) == 1 and 'notdirectory' or 'missing'}
end
local names = redis.call('ZRANGEBYLEX', LIST, a.after == '' and '-' or '(' .. a.after, '+', 'LIMIT', 0, a.max)
local result = {'ok', #names == a.max and names[#names] or ''}
for _, name in ipairs(names) do
  if is_name(name) then
    result[#result + 1] = name
  else
    redis.pcall('ZREM', LIST, name) -- a server that may not be written to keeps it
  end
end
return result
