-- Looks tasks of one shard up.
--
-- ARGV from 4: ids
--
-- Result: 'layout', or {seconds, microseconds, woke, then for each {state,
-- record, lease}, or an empty list where there is none}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local result = {clock[1], clock[2], 0}
for i = 4, #ARGV do
  local state, r, lease = find(ARGV[i])
  result[#result + 1] = state and {state, r.text, lease or ''} or {}
end
result[3] = wake()
return result
