-- directory: makes, changes or removes a directory.
--
-- KEYS: DIR and LIST of the directory, the key of a lock with its name; DIR of its parent, the key of a lock with the
-- parent's name, LIST of the parent
-- ARGV: what ('make', 'set', 'remove', or 'undo' a make), made, leaf, needed (its parent must exist; '' for the root),
-- ttl, revision, meta
-- → {'ok'} | {'exists', made} | {'missing'} | {'notdirectory'} | {'notempty'}
local DIR, LIST, L, PARENT, PARENT_LOCK, PARENT_LIST = unpack(KEYS)
local what, made, leaf, needed, ttl, revision, meta = unpack(ARGV)
local call = redis.call
local old = call('HGET', DIR, 'made')
if what == 'make' then
  if needed == '1' and call('EXISTS', PARENT) == 0 then
    return {call('EXISTS', PARENT_LOCK) == 1 and 'notdirectory' or 'missing'}
  end
  if old and old ~= made then return {'exists', old} end
  if old and tonumber(call('HGET', DIR, 'revision')) > tonumber(revision) then return {'ok'} end -- changed since
  if call('EXISTS', L) == 1 then return {'exists', ''} end
elseif what == 'undo' then
  if old ~= made then return {'ok'} end
elseif not old and needed ~= '' then
  return {call('EXISTS', L) == 1 and 'notdirectory' or 'missing'}
elseif what == 'set' then
  made = old or made
elseif call('ZCARD', LIST) > 0 then
  return {'notempty'}
end
if what == 'undo' or what == 'remove' then
  call('DEL', DIR, LIST)
  call('ZREM', PARENT_LIST, leaf)
  return {'ok'}
end
call('HSET', DIR, 'made', made, 'ttl', ttl, 'revision', revision, 'meta', meta)
if needed ~= '' then call('ZADD', PARENT_LIST, 0, leaf) end
return {'ok'}
