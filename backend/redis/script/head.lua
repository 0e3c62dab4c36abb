-- head: a lock in the server.  Stands in every full script about one; behind it look.lua and, for what changes a lock,
-- common.lua.
--
-- Of a lock (or of the queue of a directory, `sequence`) with the key L:
--   L      string  the token of its only holder, or a word of ours (below); its
--                  PX is the deadline, and the lock-delay.  The lock that other clients know.
--                  Of an uncontended lock (uncontended.c) it is UNCONTENDED, the token, the number, the time of the
--                  grant in server us, the lock-delay, and the claim as its mount packed it; then there are no
--                  side keys but FENCE: see look and unfold.
--   ORDER  zset    ticket -> number: holders and waiters
--   TERM   zset    ticket -> deadline in server ms: of the lease, or of a waiter's liveness
--   WAIT   zset    ticket -> number: those that do not hold yet
--   INFO   hash    ticket -> record; c:ticket -> content; s:name -> ticket of a sequence;
--                  pairwise -> 1 when tickets must be compared one by one (byte ranges, shared
--                  identities); top -> highest number granted;
--                  readers -> 1 when no exclusive ticket of a sequence holds; p:mount lock owner -> the ticket
--                  with which it holds; identities, looked, seen: covered ranges, see common.lua
--   FENCE  string  the last number given; if L is uncontended, or was, and has been given back, to whom as well, and which of these:
--                  NUMBER MOUNT TICKET and, at once behind it, + or -
-- Of its directory: DIR (hash: attributes; delays -> 1 if it has, or had, a lock-delay), LIST (zset: names, all of score 0),
-- WAITERS (zset: waiting ticket -> deadline).  SELF is the hash that would make
-- the name itself a directory.  MINE is the set of the mount's leases and handle locks.
--
-- A script touches no keys but those that it is given.  Frequent calls take numbers as text: Redis makes a number
-- text by printf, which costs it as much as the command.
--
-- L is the authority: when it is gone or another's, our holders are gone.
local L, ORDER, TERM, WAIT, INFO, FENCE, DIR, LIST, WAITERS, SELF, MINE = unpack(KEYS)

local SHARED = 'leasefs:held' -- several hold, or one that is not exclusive
local DELAY = 'leasefs:delay' -- nobody holds: the directory's lock-delay runs
local CLAIM = 3000            -- ms that who was handed the lock has to claim it
local KEPT = 60000            -- ms that side keys outlive the last deadline
local UNCONTENDED_CONTENT = 512 -- bytes that are kept in L, which is read each time
local FIRST, LAST = '0000000000000000', 'ffffffffffffffff'

local a = cmsgpack.unpack(ARGV[1]) -- what the script is to do: fields of these names; one that is not there is nil
local leaf, sequence, id = a.leaf, a.sequence, a.ticket

local function number_text(x) return string.format('%.0f', x) end

-- A ticket that got the last number uncontended, and has not given it back, has lost the lock: L would be there.
local function last_number()
  local noted = FENCE == fence_of and fence or call('GET', FENCE) or '0'
  local number = noted:match('^%d+$')
  if number then return tonumber(number) end
  local mount, ticket = noted:match('^%d+ (lfs:%w+) (%x+)%+$')
  if ticket and ticket ~= id and not closed then call('PUBLISH', mount, 'e ' .. ticket .. ' lost') end
  return tonumber(noted:match('^%d+') or 0)
end

local function set_number(number)
  fence_of = nil
  call('SET', FENCE, number, 'PX', FENCE_KEPT)
end

