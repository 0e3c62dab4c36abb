-- enter: which version of its data the server has; asked on each new connection, and when VERSION may have changed.
--
-- VERSION is `version state longest life`: a random number; the state, f (fresh: nothing was known before), c (closed) or o
-- (open again); the longest renewable term in use, ms; and which life of the server wrote it (a restart and a promotion
-- begin another).  A server that has forgotten has no VERSION, or an old one.  Who knows better closes: then
-- nothing new is granted while any holder that was there before may still believe in its term, and mounts put back what
-- they believe in (reclaim.lua; RECLAIMED is the set of those tickets).  Who has known it closed for that term, and a
-- hundredth of it, opens it.
--
-- KEYS: VERSION, RECLAIMED
-- version: the one that the mount knows ('': none); longest: the longest term that it knows of; most: for how long it
-- closes at most; fresh: a random number; closed: for so long it has known that version to be; strict: a server that
-- was started less than the longest term ago may have been there before, too
-- → {version, state, longest, how many tickets were reclaimed}
local VERSION, RECLAIMED = unpack(KEYS)
local call = redis.call
local a = cmsgpack.unpack(ARGV[1])

local server, replication = redis.pcall("INFO", "server"), redis.pcall("INFO", "replication") -- may not be permitted

local function told(text, field) return type(text) == 'string' and text:match(field .. ':(%x+)') or '' end

local run, before = told(server, 'run_id'), told(replication, 'master_replid2')
local life = run .. ':' .. told(replication, 'master_replid')

local noted = redis.pcall('GET', VERSION)
local version, state, longest, of = (type(noted) == 'string' and noted or ''):match('^(%x+) (%a) (%d+) (%S+)$')
local was = version and noted
longest = math.min(math.max(tonumber(longest or 0), a.longest), a.most)

-- The first replica that a server gets gives it another replication id, but no past one, as a promotion does.
local same_life = version and (of == life or of:match('^%x*') == run and before:match('^0+$'))

local closes
if not version then
  closes = a.version ~= '' or a.strict and (tonumber(told(server, 'uptime_in_seconds')) or 0) * 1000 < longest
else
  closes = not same_life or state == 'f' and a.version ~= '' and a.version ~= version
end
if closes then
  version, state = a.fresh, 'c'
elseif not version then
  version, state = a.fresh, 'f'
elseif state == 'c' and a.version == version and a.closed >= longest + math.floor(longest / 100) + 2 then
  state = 'o'
end
local marker = version .. ' ' .. state .. ' ' .. string.format('%.0f', longest) .. ' ' .. life
if marker ~= was then
  local deleted = redis.pcall('DEL', VERSION) -- a write that a full server permits, before the one it would refuse
  if type(deleted) == 'table' then return deleted end
  call('SET', VERSION, marker)
  if closes then call('DEL', RECLAIMED) end
end
return {version, state, string.format('%.0f', longest), redis.pcall('SCARD', RECLAIMED)}
