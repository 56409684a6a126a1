-- Begins or ends a move from one layout to another on one shard.
--
-- ARGV 4  'begin': this shard is to receive from layout 5; 'end': it has received
--         all; 'gone': it has given all; '': only to be read
--      5  the layout it receives from
--      6  the queue's sequence so far
--
-- Result: 'layout', or {seconds, microseconds, 0, the shard's own sequence}.

local meta = call('HMGET', META, 'v', 'q')
if foreign(meta[1]) then
  return 'layout'
end
local own = tonumber(meta[2]) or 0
local what = ARGV[4]
if what == 'begin' then
  -- Not again what has ended: something of it may still come in late.
  if call('HGET', META, 'done') ~= ARGV[5] then
    call('HSET', META, 'v', ARGV[1], 'from', ARGV[5])
  end
elseif what == 'end' then
  call('HDEL', META, 'from')
  call('HSET', META, 'q', math.max(own, tonumber(ARGV[6])), 'done', ARGV[5])
  call('UNLINK', MOVING)
elseif what == 'gone' and call('HLEN', TASKS) == 0 then
  -- Whoever still knows the old layout is told that there is another.
  call('UNLINK', TASKS, DUE, LEASES, ENDS, DEAD, MOVING)
  call('HSET', META, 'v', 'gone')
  call('EXPIRE', META, 86400)
end
return {clock[1], clock[2], 0, own}
