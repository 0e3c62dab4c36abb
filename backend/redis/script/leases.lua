-- leases: those of a mount, as remember of head.lua has noted them.
--
-- KEYS 1: the set of them
-- cursor: at first '0'; max: about so many
-- → {the next cursor ('0': that was all), {`ticket kind path`, …}}
local a = cmsgpack.unpack(ARGV[1])
return redis.call('SSCAN', KEYS[1], a.cursor, 'COUNT', a.max)
