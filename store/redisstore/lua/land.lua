-- Puts tasks that were taken from shards of another layout into one of this. Each
-- id is noted, so that a task that comes twice, because whoever moves died, or
-- there are two who do, is put in once, even where it has run and gone meanwhile.
--
-- ARGV 4  the layout they come from
--      then id, state and record of each
--
-- Result: 'layout'; 'over' where that layout is not being moved from any more; or
-- {seconds, microseconds, woke}.

local meta = call('HMGET', META, 'v', 'from')
if foreign(meta[1]) then
  return 'layout'
end
if meta[2] ~= ARGV[4] then
  return 'over'
end
look()
for i = 5, #ARGV, 3 do
  local id, state, rec = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if call('HSETNX', MOVING, id, 'landed') == 1 and call('HSETNX', TASKS, id, rec) == 1 then
    local r = readRecord(rec, id)
    call('ZADD', state == 'd' and DEAD or DUE, r.due, r.member)
  end
end
return {clock[1], clock[2], wake()}
