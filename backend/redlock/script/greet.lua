-- greet: said on each new connection: what INFO tells of this server.
--
-- KEYS: STORE (see format.lua)
-- ARGV: how the mount describes itself; its host, by which STORE has it
-- → its text, or nothing where it is not permitted; an error if the data are of a newer format
local STORE, about, host = KEYS[1], ARGV[1], ARGV[2]
local newer = find_newer_format(STORE, about)
if newer then return refuse_format(newer, about) end
note_mount(STORE, host, about, '')

local answer = ''
for _, section in ipairs({'server', 'memory', 'persistence', 'replication'}) do
  local part = redis.pcall('INFO', section)
  if type(part) == 'table' then return '' end
  answer = answer .. part .. '\r\n'
end
return answer
