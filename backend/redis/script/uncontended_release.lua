-- uncontended_release: release.lua for an uncontended lock.  See uncontended.c.
--
-- KEYS: L, FENCE, LIST, MINE
-- ARGV: ' MOUNT TICKET+', as FENCE has it; leaf; what MINE has of it ('': nothing); the version that the mount knows, which
--       does not matter
-- → 1, or nil: send release.lua
local known = call('MGET', KEYS[1], KEYS[2])
local has, fence, ticket = known[1], known[2] or '', ARGV[1]:sub(-33, -2)
local another = fence:sub(-33) == ticket .. '+' and fence:sub(17) ~= ARGV[1] -- a mount that started later has taken it over
if has and has:sub(1, #UNCONTENDED + 32) == UNCONTENDED .. ticket and not another then
  call('DEL', KEYS[1])
  if #fence == FENCE_LENGTH and fence:sub(17) == ARGV[1] then
    call('SETRANGE', KEYS[2], '70', '-')
  else
    call('SET', KEYS[2], has:match('^%d+', #UNCONTENDED + 33), 'PX', FENCE_KEPT)
  end
  call('ZREM', KEYS[3], ARGV[2])
  if ARGV[3] ~= '' then redis.pcall('SREM', KEYS[4], ARGV[3]) end
  return 1
end
