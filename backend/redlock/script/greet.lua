-- greet: said on each new connection: what INFO tells of this server.
-- → its text, or nothing where it is not permitted
local answer = ''
for _, section in ipairs({'server', 'memory', 'persistence', 'replication'}) do
  local part = redis.pcall('INFO', section)
  if type(part) == 'table' then return '' end
  answer = answer .. part .. '\r\n'
end
return answer
