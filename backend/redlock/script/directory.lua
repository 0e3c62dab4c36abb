-- directory: makes, changes or removes a directory.
--
-- KEYS: DIR and LIST of the directory, the key of a lock with its name; DIR of its parent, the key of a lock with the
-- parent's name, LIST of the parent; GONE
-- ARGV: what ('make', 'set', 'remove', or 'undo' a make or a removal), id (of the making or the removal), leaf, needed (its
-- parent must exist; '' for the root), ttl, revision, meta
-- → {'ok'} | {'exists', made} | {'missing'} | {'notdirectory'} | {'notempty'}
--
-- GONE is DIR as it was, and removal, the id; for a minute.  So a removal without a majority is undone exactly where it was
-- done, and a late request that restores a directory does not make it again after another mount has removed it.
local DIR, LIST, L, PARENT, PARENT_LOCK, PARENT_LIST, GONE = unpack(KEYS)
local what, id, leaf, needed, ttl, revision, meta = unpack(ARGV)
local call = redis.call
local GONE_KEPT = 60000 -- ms
local old = call('HGET', DIR, 'made')
local removal = call('HGET', GONE, 'removal')

local function put(attributes)
  call('HSET', DIR, unpack(attributes))
  if needed ~= '' then call('ZADD', PARENT_LIST, 0, leaf) end
  return {'ok'}
end

local function remove()
  call('DEL', DIR, LIST)
  call('ZREM', PARENT_LIST, leaf)
  return {'ok'}
end

if what == 'make' then
  if needed == '1' and call('EXISTS', PARENT) == 0 then
    return {call('EXISTS', PARENT_LOCK) == 1 and 'notdirectory' or 'missing'}
  end
  if old and old ~= id then return {'exists', old} end
  if old and tonumber(call('HGET', DIR, 'revision')) > tonumber(revision) then return {'ok'} end -- changed since
  if not old and call('HGET', GONE, 'made') == id then return {'ok'} end -- removed since
  if call('EXISTS', L) == 1 then return {'exists', ''} end
elseif what == 'undo' then
  if old == id then return remove() end
  if old or removal ~= id then return {'ok'} end
  local attributes = call('HGETALL', GONE)
  call('DEL', GONE)
  put(attributes)
  call('HDEL', DIR, 'removal')
  return {'ok'}
elseif what == 'remove' and not old and removal == id then
  return {'ok'} -- a repeated request
elseif not old and needed ~= '' then
  return {call('EXISTS', L) == 1 and 'notdirectory' or 'missing'}
elseif what == 'set' then
  id = old or id
elseif call('ZCARD', LIST) > 0 then
  return {'notempty'}
end
if what == 'remove' then
  call('DEL', GONE)
  call('HSET', GONE, 'removal', id, unpack(call('HGETALL', DIR)))
  call('PEXPIRE', GONE, GONE_KEPT)
  return remove()
end
return put({'made', id, 'ttl', ttl, 'revision', revision, 'meta', meta})
