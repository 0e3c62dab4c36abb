-- first: what a script about a lock begins with; see head.lua.
local call = redis.call
local LONE = 'leasefs:one:'    -- one holds alone
local FENCE_KEPT = '604800000' -- ms: seven days
local closed                   -- nothing new is granted: see version.lua
local fence, fence_of          -- what is at FENCE, if that is this key
