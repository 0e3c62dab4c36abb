-- claim: the claim of an uncontended lock, as its value has it: a map, packed.  Mount and ttl stand first, so that
-- uncontended_renew_many.lua compares them without unpacking it.
local CLAIM_HEAD = 3 -- bytes of a map's head, at most

local function claim_begin(mount, ttl) return cmsgpack.pack('mount', mount, 'ttl', ttl) end

local function pack_claim(t)
  local text, count = claim_begin(t.mount, t.ttl), 2
  for field, x in pairs(t) do
    if field ~= 'mount' and field ~= 'ttl' then text, count = text .. cmsgpack.pack(field, x), count + 1 end
  end
  return string.char(128 + count) .. text
end
