-- Moves the edge of a window on, before what is up to it is loaded; or begins a new
-- window, empty.
--
-- KEYS  1 window, 2 near, 3 wake, 4 tender, 5 ends
-- ARGV  1 the generation that is meant, 2 edge, 3 how long it is kept if nobody
--       comes by, in ms, 4 '1': a new window, where there is none of a higher
--       generation
--
-- Result: {generation, version, edge, loaded}

local gen = redis.call('HGET', KEYS[1], 'gen')
if ARGV[4] == '1' and (not gen or tonumber(gen) < tonumber(ARGV[1])) then
  redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[5])
  redis.call('HSET', KEYS[1], 'gen', ARGV[1], 'ver', '1', 'edge', ARGV[2], 'loaded', '0')
elseif gen == ARGV[1] then
  local edge = tonumber(redis.call('HGET', KEYS[1], 'edge'))
  if edge < tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'edge', ARGV[2])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('PEXPIRE', KEYS[5], ARGV[3])
local w = redis.call('HMGET', KEYS[1], 'gen', 'ver', 'edge', 'loaded')
return {w[1] or 0, w[2] or 0, w[3] or 0, w[4] or 0}
