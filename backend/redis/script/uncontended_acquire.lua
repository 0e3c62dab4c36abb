-- uncontended_acquire: acquire.lua for a lock that nobody holds or waits for.  See uncontended.c.
--
-- KEYS: L, ORDER, FENCE, DIR, LIST, SELF, MINE, VERSION
-- ARGV: what L is to have of the claim, packed; ' MOUNT TICKET+', as FENCE has it; ttl; leaf; what MINE is to have of it
--       ('': nothing); if need be, what is so: the directory must exist ('n'), MINE may be empty or about to run out ('m'),
--       or both; the version that the mount knows
-- → 'granted NUMBER', or nil: send acquire.lua
local claim, to, ttl, leaf, mine = unpack(ARGV)
local so = #ARGV == 7 and ARGV[6] or ''
local needed = so:byte() == 110
local known = call('MGET', KEYS[8], KEYS[3])
local marker, fence = known[1] or '', known[2] or ''
local last = not fence:find('%D') and (tonumber(fence) or 0)
if #fence == FENCE_LENGTH and fence:byte(-1) == 45 then last = tonumber(fence:sub(1, 16)) end -- else who had it has lost it
if last and marker:sub(1, 16) == ARGV[#ARGV] and marker:byte(18) ~= 99 then -- the epoch is ours, and open: see epoch.lua
  local there = call('EXISTS', KEYS[1], KEYS[2], KEYS[6], KEYS[4])
  local made, delay, next_name = not needed, '0', false
  if there == 1 then -- the directory, if it has any of these
    made, delay, next_name = unpack(call('HMGET', KEYS[4], 'made', 'delay', 'sequence'))
    made, delay = made or next_name and not needed, delay or '0'
  end
  local clock = call('TIME')
  local number = clock[1] .. ('00000' .. clock[2]):sub(-6)
  if there <= 1 and made and tonumber(number) > last then
    if delay ~= '0' then ttl = tostring(ttl + delay) end
    call('SET', KEYS[1], UNCONTENDED .. to:sub(-33, -2) .. number .. ' ' .. number .. ' ' .. delay .. ' ' .. claim, 'PX', ttl)
    if #fence == FENCE_LENGTH and fence:sub(1, 6) == number:sub(1, 6) then -- its term began within the last three hours
      call('SETRANGE', KEYS[3], '0', number .. to)
    else
      call('SET', KEYS[3], number .. to, 'PX', FENCE_KEPT)
    end
    call('ZADD', KEYS[5], '0', leaf)
    if so:byte(-1) == 109 then
      call('SADD', KEYS[7], '', mine) -- with '' it is there until it runs out
      call('PEXPIRE', KEYS[7], FENCE_KEPT)
    elseif mine ~= '' then
      call('SADD', KEYS[7], mine)
    end
    return 'granted ' .. number
  end
end
