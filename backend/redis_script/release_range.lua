-- release_range: gives back a part of what a party holds.
--
-- ARGV: leaf, sequence, mount, party, start, end
-- → {ticket, what is left as segments ('': nothing), …}
local _, _, mount, party, start, last = unpack(ARGV)
call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
expire()
local result = {}
for _, id in ipairs(tickets > 0 and call('ZRANGE', ORDER, 0, -1) or {}) do
  local t = not waits(id) and load(id)
  if t and t.c and t.m == mount and t.p == party then -- one that is not claimed yet waits, to its mount
    local left = replace(t.s, start, last, nil)
    if #left == 0 then
      if drop(id, t) then vacate(0) end
    else
      t.s, t.x = left, 1
      for i = 3, #left, 3 do if left[i] == 0 then t.x = 0 end end
      if partial(t) and not odd then set_odd() end
      save(id, t)
      hold(id, t, tonumber(call('ZSCORE', TERM, id)))
    end
    result[#result + 1] = id
    result[#result + 1] = table.concat(left, ' ')
  end
end
grant()
finish()
return result
