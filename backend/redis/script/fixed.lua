-- fixed: whether the term of a lease is fixed, from what the filesystem keeps with it: then the eighth word is odd.
local function is_fixed(meta)
  local flags = type(meta) == 'string' and meta:match('^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) ')
  return not flags or flags % 2 == 1
end
