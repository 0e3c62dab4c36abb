-- stat_free: the short way of stat.lua, where there is nothing.
--
-- Fields, KEYS and results: see stat.lua.
local there = a.root and 3 or call('EXISTS', L, ORDER, SELF, SELF, SELF) -- who is named three times counts three times
if there == 0 and not KEYS[13] then return {'nothing', 0} end
