-- greet: the first request on each connection: checks the format number and reads INFO.
--
-- KEYS: STORE (see format.lua)
-- ARGV: `NUMBER VERSION HOST` of the mount
-- → the text of INFO, '' if that is not permitted; an error if the data have a newer format
local STORE, about = KEYS[1], ARGV[1]
local newer = find_newer_format(STORE, about)
if newer then return refuse_format(newer, about) end
note_format(STORE, about)

local answer = ''
for _, section in ipairs({'server', 'memory', 'persistence', 'replication'}) do
  local part = redis.pcall('INFO', section)
  if type(part) == 'table' then return '' end
  answer = answer .. part .. '\r\n'
end
return answer
