-- leases: those of a mount, as remember of head.lua has noted them.
--
-- KEYS 1: the set of them
-- cursor: at first '0'
-- → {the next cursor ('0': that was all), {`ticket kind path`, …}}
return redis.call('SSCAN', KEYS[1], cmsgpack.unpack(ARGV[1]).cursor, 'COUNT', 500)
