-- renew_lone: the short way of renew.lua, of a lock that is held by one alone.
--
-- Fields and results: see renew.lua.
look()
if is_lone(id) and a.mode == 0 and lone.l == a.ttl then
  call('PEXPIRE', L, number_text(a.left + lone.d)) -- of a full server: a write that it permits goes first
  if lone.k == 1 then call('PEXPIRE', MINE, FENCE_KEPT) end
  return 1
end
