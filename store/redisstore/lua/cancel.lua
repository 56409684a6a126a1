-- Removes tasks of one shard.
--
-- ARGV from 4 for each: id, and 1 to revoke a lease, else 0
--
-- Result: 'layout', or {seconds, microseconds, woke, then a number for each}:
-- 0 not found, 1 cancelled, 2 leased, 3 moving: ask again.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local result = {clock[1], clock[2], 0}
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  local state, r = find(id)
  local answer = 0
  if state == 'm' then
    answer = 3
  elseif state == 'l' and ARGV[i + 1] ~= '1' then
    answer = 2
  elseif state then
    unlink(state, r, id)
    call('HDEL', TASKS, id)
    answer = 1
  end
  result[#result + 1] = answer
end
result[3] = wake()
return result
