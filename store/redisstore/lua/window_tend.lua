-- Says what a window is, and who looks after it: one process at a time.
--
-- KEYS  1 window, 2 near, 3 wake, 4 tender, 5 ends
-- ARGV  1 who asks; '' only looks, 2 for how long in ms
--
-- Result: {generation, version, edge, loaded, 1 if it is who asks, how many are in}

local w = redis.call('HMGET', KEYS[1], 'gen', 'ver', 'edge', 'loaded')
local mine = 0
if ARGV[1] ~= '' then
  local who = redis.call('GET', KEYS[4])
  if not who or who == ARGV[1] then
    redis.call('SET', KEYS[4], ARGV[1], 'PX', ARGV[2])
    mine = 1
  end
end
return {w[1] or 0, w[2] or 0, w[3] or 0, w[4] or 0, mine, redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[5])}
