-- first: what a script about a lock begins with; see head.lua.
local call = redis.call
local UNCONTENDED = 'leasefs:one:'    -- one holds alone
local FENCE_KEPT = '691200000' -- ms: eight days, so that a term that began half a day ago is one of seven
local FENCE_LENGTH = 71        -- of what it is while one holds alone, until the year 2286
local closed                   -- nothing new is granted: see epoch.lua
local fence, fence_of          -- what is at FENCE, if that is this key
