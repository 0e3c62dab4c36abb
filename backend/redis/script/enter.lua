-- enter: which version of its data the server has, and what this mount may believe in; asked on each new connection, when
-- VERSION may have changed, and before a mount asks for a longer term than the server knows of.
--
-- VERSION is `version state longest count life`: a random number; the state, f (fresh: nothing was known before), c (closed) or o
-- (open again); the longest term that somebody may believe in, ms (while it is closed, somebody whose locks are not put back
-- yet); how many mounts have told a term, or a longer one, with ! behind it if the server has lost data; and which life of the
-- server wrote it (a restart and a promotion begin another).  TERMS holds `mount term version` of each mount, until the
-- server's time when that term is over: the longest renewable term that it may believe in, and the version in which all is
-- that it believes in.
--
-- A server that has forgotten has no VERSION, or an old one.  A mount that knows better closes it: then nothing new is granted while any
-- holder that was there before may still believe in its term, and mounts put back what they believe in (reclaim.lua;
-- RECLAIMED is the set of those tickets).  A mount that has known it closed for that term, and a hundredth of it, opens it.
-- After a restart of the one server with all data that anybody knows of, only mounts that have not put back what they
-- believe in can lose something, and TERMS has all of those: it opens once they have.
--
-- KEYS: VERSION, RECLAIMED, TERMS, STORE (see format.lua)
-- version: the one that the mount knows ('': none); mount; term: the longest that it may believe in; others: the longest of
-- the others, as it was last told; count: as it was last told; most: for how long it closes at most; fresh: a random number;
-- closed: for so long it has known that version to be; back: all is put back that it believes in; single: one server without replicas that
-- could take over; strict: a server that was started less than the longest term ago may have been there before, too;
-- about: the mount's format number, version and host; identity: the mount's name in STORE; age: ms since the mount began
-- → {version, state, longest, how many tickets were reclaimed, the longest term of others, count, 1 if data were lost}
local TERM_KEPT = 60000 -- ms that a term counts beyond its end, so that a mount need not tell it for each lock
local VERSION, RECLAIMED, TERMS, STORE = unpack(KEYS)
local call = redis.call
local a = cmsgpack.unpack(ARGV[1])

local newer = find_newer_format(STORE, a.about)
if newer then return refuse_format(newer, a.about) end

local server, replication = redis.pcall("INFO", "server"), redis.pcall("INFO", "replication") -- may not be permitted

local function read_field(text, field) return type(text) == 'string' and text:match(field .. ':(%x+)') or '' end

local run, before = read_field(server, 'run_id'), read_field(replication, 'master_replid2')
local life = run .. ':' .. read_field(replication, 'master_replid')

local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function number_text(x) return string.format('%.0f', x) end

local noted = redis.pcall('GET', VERSION)
local version, state, longest, count, lost, of =
  (type(noted) == 'string' and noted or ''):match('^(%x+) (%a) (%d+) (%d+)(!?) (%S+)$')
local was = version and noted
longest, count, lost = tonumber(longest or 0), tonumber(count or 0), lost == '!'

-- The first replica that a server gets gives it another replication id, but no past one, as a promotion does.
local never_promoted = before:match('^0*$')
local same_life = version and (of == life or of:match('^%x*') == run and never_promoted)

local closes
if not version then
  closes = a.version ~= '' or a.strict and (tonumber(read_field(server, 'uptime_in_seconds')) or 0) * 1000 < math.max(longest, a.term)
else
  closes = not same_life or state == 'f' and a.version ~= '' and a.version ~= version
end
if closes then
  lost = lost or not version or state == 'f' and a.version ~= '' and a.version ~= version or not (a.single and never_promoted)
  version, state = a.fresh, 'c'
elseif not version then
  version, state = a.fresh, 'f'
end
lost = state == 'c' and (lost or a.count > count)

-- The terms that count, and whose all is in this version.
local cut = redis.pcall('ZREMRANGEBYSCORE', TERMS, '-inf', number_text(now)) -- which a full server permits, too
if type(cut) == 'table' then
  if not cut.err:find('WRONGTYPE', 1, true) then return cut end
  call('DEL', TERMS)
end
local own, others, away, own_term, own_version = nil, 0, 0, 0, '-'
for _, text in ipairs(call('ZRANGE', TERMS, 0, -1)) do
  local mount, term, at = text:match('^(%S+) (%d+) (%S+)$')
  if mount == a.mount then
    own, own_term, own_version = text, tonumber(term), at
  elseif mount then
    others = math.max(others, tonumber(term))
    if at ~= version then away = math.max(away, tonumber(term)) end
  end
end
if state ~= 'c' or a.version == '' or a.back and a.version == version then own_version = version end
if own_version ~= version then away = math.max(away, own_term, a.term) end
count = math.max(count, a.count)
if a.term > own_term then count = count + 1 end

if state ~= 'c' then
  longest = math.max(others, a.term)
elseif lost then
  longest = math.max(longest, others, a.others, own_term, a.term)
else
  longest = away
end
longest = math.min(longest, a.most)
local over = a.closed >= longest + math.floor(longest / 100) + 2
if state == 'c' and not closes and a.version == version and (over or not lost and longest == 0) then
  state, lost, longest = 'o', false, math.min(math.max(others, a.term), a.most)
  own_version = version
end

local marker = version .. ' ' .. state .. ' ' .. number_text(longest) .. ' ' .. number_text(count) .. (lost and '! ' or ' ') .. life
if marker ~= was then
  call('DEL', VERSION) -- it may be of the wrong type
  call('SET', VERSION, marker)
  if closes then call('DEL', RECLAIMED) end
end
if own then call('ZREM', TERMS, own) end
if a.term > 0 then
  call('ZADD', TERMS, number_text(now + a.term + TERM_KEPT), a.mount .. ' ' .. number_text(a.term) .. ' ' .. own_version)
  call('PEXPIRE', TERMS, '604800000')
end

-- Writes this mount's entry in STORE.  → true if there was none
local function note_mount()
  local known, note = redis.pcall('HGET', STORE, a.identity), a.about .. ' ' .. a.mount
  if type(known) == 'string' and known:match('^(.*) since %d+$') == note then return false end
  redis.pcall('HDEL', STORE, '') -- a write that a full server permits, before one it would refuse
  return redis.pcall('HSET', STORE, a.identity, note .. ' since ' .. number_text(now - a.age)) == 1
end

-- Removes the entries of mounts that have ended: nobody is subscribed to their channels.  A mount that has only lost its
-- connection writes its entry again when it connects.
local function remove_notes_of_the_gone()
  local notes = redis.pcall("HGETALL", STORE) -- may not be permitted
  for i = 1, #notes, 2 do
    local channel = notes[i + 1]:match('^%d+ %S+ %S+ (%S+)')
    if channel and notes[i] ~= a.identity and redis.pcall('PUBLISH', channel, 'n') == 0 then call('HDEL', STORE, notes[i]) end
  end
end

-- Is the number of entries a power of two, 16 or more?  Then the old ones are removed.  So there are at most 16 entries, or
-- twice as many as there ever were mounts at the same time.
local function has_doubled(count) return type(count) == 'number' and count >= 16 and math.frexp(count) == 0.5 end

note_format(STORE, a.about)
if note_mount() and has_doubled(redis.pcall("HLEN", STORE)) then remove_notes_of_the_gone() end
return {
  version, state, number_text(longest), redis.pcall('SCARD', RECLAIMED), number_text(others), number_text(count), lost and 1 or 0,
}
