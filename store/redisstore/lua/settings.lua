-- Gives one shard the queue's settings, where it has older ones.
--
-- ARGV 4  version
--      5  max_lost, 6 max_attempts, 7 lease in ms or ms.us, 8 1 where paused
--
-- Result: 'layout', or {seconds, microseconds, 1}.

local meta = call('HMGET', META, 'v', 's')
if foreign(meta[1]) then
  return 'layout'
end
if (tonumber(meta[2]) or 0) < tonumber(ARGV[4]) then
  call('HSET', META, 'v', ARGV[1], 's', ARGV[4], 'ml', ARGV[5], 'ma', ARGV[6], 'ls', ARGV[7], 'pz', ARGV[8])
  -- Whoever sleeps has slept by the old ones.
  headDue, headEnd = nil, nil
  wake()
end
return {clock[1], clock[2], 1}
