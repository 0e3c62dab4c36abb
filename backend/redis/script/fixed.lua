-- fixed: whether the term of a lease is fixed, from what the filesystem keeps with it: then the lowest bit of the eighth
-- word is set.
local function is_fixed(meta)
  local flags = type(meta) == 'string' and meta:match('^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) ')
  return not flags or flags % 2 == 1
end
