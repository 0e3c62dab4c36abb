-- heartbeat: a mount's word of life for those of its tickets that wait, and a look at their locks, as each would have it by
-- asking for itself: what has expired there is ended, and handed on.
--
-- KEYS: those of head.lua, of one lock (or queue) after the other
-- a: places ({leaf, sequence (1/0), how many tickets, …}), tickets ({ticket, liveness, …}, in that order)
-- → {ticket, rank, wait ms, foreign (1/0), …}: each that does not wait any more, or may not
--   (rank -1); and the first that waits, if it is one of these (rank 0, and what acquire.lua answers)
local result, at = {}, 1

local function tell(ticket, rank, wait)
  for _, x in ipairs({ticket, rank, wait, who == 'foreign' and 1 or 0}) do result[#result + 1] = x end
end

-- Which of these wait.  A mount names its tickets in their order, and they mostly stand together: then one command reads
-- them all.
local function find_waiting(ids)
  local found, first, last = {}, waits(ids[1]), waits(ids[#ids])
  if first and last then
    local low, high = math.min(first, last), math.max(first, last)
    local part = call('ZRANGEBYSCORE', WAIT, number_text(low), number_text(high), 'LIMIT', 0, 2 * #ids)
    for _, ticket in ipairs(part) do found[ticket] = true end
  end
  for _, ticket in ipairs(ids) do found[ticket] = found[ticket] or waits(ticket) end
  return found
end

local function keep_alive(ids, livenesses)
  call('ZREM', WAITERS, '') -- a write that a full server permits, before those it would refuse
  expire()
  local lives, longest, found = {}, 0, find_waiting(ids)
  for i, ticket in ipairs(ids) do
    if found[ticket] then
      lives[#lives + 1] = number_text(now + livenesses[i])
      lives[#lives + 1] = ticket
      longest = math.max(longest, livenesses[i])
    end
  end
  if #lives > 0 then
    call('ZADD', TERM, unpack(lives))
    call('ZADD', WAITERS, unpack(lives))
    call('PEXPIRE', WAITERS, number_text(math.max(longest + KEPT, call('PTTL', WAITERS))))
  end
  local before = waiting
  grant()
  finish()
  if waiting < before then found = find_waiting(ids) end
  local first = waiting > 0 and call('ZRANGE', WAIT, 0, 0)[1]
  for _, ticket in ipairs(ids) do
    if ticket == first then
      tell(ticket, 0, sequence and remaining() or time_left())
    elseif not found[ticket] then
      tell(ticket, -1, -1)
    end
  end
end

for i = 0, #a.places / 3 - 1 do
  local ids, livenesses = {}, {}
  L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF, MINE = unpack(KEYS, i * 11 + 1, i * 11 + 11)
  leaf, sequence = a.places[3 * i + 1], a.places[3 * i + 2] == 1
  for _ = 1, a.places[3 * i + 3] do
    ids[#ids + 1], livenesses[#livenesses + 1] = a.tickets[at], a.tickets[at + 1]
    at = at + 2
  end
  if not pcall(keep_alive, ids, livenesses) then
    for _, ticket in ipairs(ids) do tell(ticket, -1, -1) end -- it hears what is wrong there
  end
end
return result
