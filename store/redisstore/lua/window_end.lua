-- Notes that a window is loaded up to an instant.
--
-- KEYS  1 window, 2 near, 3 wake, 4 tender, 5 ends
-- ARGV  1 the generation that is meant, 2 loaded, 3 how long it is kept
--
-- Result: {generation, version, edge, loaded}

if redis.call('HGET', KEYS[1], 'gen') == ARGV[1] then
  if tonumber(redis.call('HGET', KEYS[1], 'loaded')) < tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'loaded', ARGV[2])
  end
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
  redis.call('PEXPIRE', KEYS[5], ARGV[3])
end
local w = redis.call('HMGET', KEYS[1], 'gen', 'ver', 'edge', 'loaded')
return {w[1] or 0, w[2] or 0, w[3] or 0, w[4] or 0}
