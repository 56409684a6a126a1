-- Removes tasks of one shard that are in one state.
--
-- ARGV 4  's' scheduled, 'r' ready, 'l' leased, 'd' dead
--      5  how many at most
--      6  what counts as now: the instant of the first call; '' now
--
-- Result: 'layout', or {seconds, microseconds, woke, how many}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
expire(200)
local what = ARGV[4]
local at = ARGV[6] == '' and now or tonumber(ARGV[6])
local set, low, high = DUE, '-inf', '+inf'
if what == 's' then
  low = '(' .. at
elseif what == 'r' then
  high = at
elseif what == 'd' then
  set = DEAD
else
  set = ENDS
end
local members = call('ZRANGEBYSCORE', set, low, high, 'LIMIT', 0, ARGV[5])
for from = 1, #members, 500 do
  local ids = {}
  local to = math.min(#members, from + 499)
  for i = from, to do
    ids[#ids + 1] = sub(members[i], 8)
  end
  call('ZREM', set, unpack(members, from, to))
  if set == ENDS then
    call('HDEL', LEASES, unpack(ids))
  end
  call('HDEL', TASKS, unpack(ids))
end
return {clock[1], clock[2], wake(), #members}
