-- Brings dead tasks of one shard back.
--
-- ARGV 4  due time for them: the instant of the first call; '' now
--      5  how many at most, where no ids are given
--      6… ids
--
-- Result: 'layout', or {seconds, microseconds, woke, how many}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local due = ARGV[4] == '' and now or tonumber(ARGV[4])
local ids = {}
if #ARGV > 5 then
  for i = 6, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
else
  local members = call('ZRANGE', DEAD, 0, ARGV[5] - 1)
  for i = 1, #members do
    ids[i] = sub(members[i], 8)
  end
end
local moved, handled = 0, 0
for i = 1, #ids do
  local rec = call('HGET', TASKS, ids[i])
  local r = readRecord(rec, ids[i])
  if r and call('ZREM', DEAD, r.member) == 1 then
    r.failures, r.lost, r.due = 0, 0, due
    call('HSET', TASKS, ids[i], writeRecord(r))
    call('ZADD', DUE, due, r.member)
    moved = moved + 1
  end
end
if #ARGV == 5 and moved < #ids then -- entries without a record that can be read
  local members = call('ZRANGE', DEAD, 0, #ids - moved - 1)
  for i = 1, #members do
    local id = sub(members[i], 8)
    local rec = call('HGET', TASKS, id)
    local r = readRecord(rec, id)
    if not r or r.member ~= members[i] then
      call('ZREM', DEAD, members[i])
      if rec and not r then
        setAside(id, rec, 'the record of a dead task can not be read')
      else
        count('orphans', 1)
      end
      handled = handled + 1
    end
  end
end
return {clock[1], clock[2], wake(), moved, moved + handled}
