-- permissions: whether the server has each command of the scripts, this user may run it, and the server accepts writes.
--
-- Redis 7 and later say what a user may run; with older ones it shows when it happens.  Each command gets as many
-- arguments as it takes: some servers refuse to check a command with fewer or more, and some of Redis 7 read past the
-- end of what they are given.  The key that is deleted at last does not exist.
--
-- KEYS: a key of the locks' pattern; ARGV: the text of the scripts
-- → {'+name', …} commands that this user may not run, and '?name error': an answer that is not understood
-- | error 'DISABLED name': the server does not have it | the error of the write
local result, seen = {}, {PUBLISH = true} -- which is about a channel
local bare = {INFO = true, TIME = true} -- these take no key, the others this many words behind it
local behind = {HDEL = 1, HEXISTS = 1, HGET = 1, HMGET = 1, HSET = 2, PEXPIRE = 1, PEXPIREAT = 1, SADD = 1,
  SET = 1, SETRANGE = 2, SISMEMBER = 1, SREM = 1, SSCAN = 1, ZADD = 2, ZCOUNT = 2, ZRANGE = 2, ZRANGEBYLEX = 2,
  ZRANGEBYSCORE = 2, ZRANK = 1, ZREM = 1, ZREMRANGEBYSCORE = 2, ZSCORE = 1}
for name in ARGV[1]:gmatch("call%('(%u+)'") do
  local answer = seen[name] or redis.pcall(name) -- which is too short to do anything
  if type(answer) == 'table' and answer.err and answer.err:find('Unknown', 1, true) then
    return redis.error_reply('DISABLED ' .. name)
  end
  if not seen[name] and redis.acl_check_cmd then
    local words = bare[name] and {name} or {name, KEYS[1]}
    for i = 1, behind[name] or 0 do words[#words + 1] = '1' end
    local understood, may = pcall(redis.acl_check_cmd, unpack(words))
    if not understood then
      result[#result + 1] = '?' .. name .. ' ' .. tostring(type(may) == 'table' and may.err or may)
    elseif not may then
      result[#result + 1] = '+' .. name:lower()
    end
  end
  seen[name] = true
end
for _, word in ipairs(result) do if word:sub(1, 1) == '+' then return result end end
local answer = redis.pcall('DEL', KEYS[1])
return type(answer) == 'table' and answer or result
