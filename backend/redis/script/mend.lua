-- mend: after a script that met a key of the wrong type.  What many locks have in common and none needs (lists of names,
-- counts of waiters, the root's attributes, leases of a mount, what was reclaimed), and what a lock can do without (its
-- revocations), is deleted, so that it goes on without; the rest costs the one lock, or the one directory, whose it is,
-- until somebody deletes it.
--
-- KEYS: those of that script
-- → {key, deleted (1/0), …}
local probes = {
  o = 'ZCARD', t = 'ZCARD', w = 'ZCARD', l = 'ZCARD', q = 'ZCARD', i = 'HEXISTS', d = 'HEXISTS', f = 'GET', m = 'SREM',
  r = 'SREM', e = 'HEXISTS',
}
local with = {HEXISTS = {''}, SREM = {''}}
local result, seen = {}, {}
for _, key in ipairs(KEYS) do
  local letter, rest = key:match('^lfs:(%a):(.*)$')
  local probe = probes[letter]
  local answer = probe and not seen[key] and redis.pcall(probe, key, unpack(with[probe] or {}))
  seen[key] = true
  if type(answer) == 'table' and answer.err and answer.err:find('WRONGTYPE', 1, true) then
    local spare = ('lqmre'):find(letter) or letter == 'd' and rest:sub(1, 4) == 'lfs:'
    if spare then redis.call('DEL', key) end
    result[#result + 1] = key
    result[#result + 1] = spare and 1 or 0
  end
end
return result
