-- Gives tasks of one shard a new due time.
--
-- ARGV from 4 for each: id, and when (see dueTime)
--
-- Result: 'layout', or {seconds, microseconds, woke, then a number for each}:
-- the new due time, or -1 not found, -2 leased, -3 moving: ask again, -4 due too
-- late.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local result = {clock[1], clock[2], 0}
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  local due = dueTime(ARGV[i + 1])
  local answer = -1
  if due > MAXDUE then
    answer = -4
  else
    local state, r = find(id)
    if state == 'l' then
      answer = -2
    elseif state == 'm' then
      answer = -3
    elseif state == 's' then
      r.due = due
      call('HSET', TASKS, id, writeRecord(r))
      call('ZADD', DUE, due, r.member)
      answer = due
    end
  end
  result[#result + 1] = answer
end
result[3] = wake()
return result
