-- Takes the lock of a takeover, and reads or writes what it is about.
--
-- KEYS  lock, info, staging
-- ARGV  token, how long the lock lasts in ms, info
-- Result: {1, info} with the lock taken, where info is that of an earlier takeover
-- if it has left anything staged, and else the one given; or {0, ms} where another
-- has the lock, for so long at least.
local lock, info, staging = KEYS[1], KEYS[2], KEYS[3]
if not redis.call('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {0, redis.call('PTTL', lock)}
end
local there = redis.call('GET', info)
if there and redis.call('HLEN', staging) > 0 then
  return {1, there}
end
redis.call('SET', info, ARGV[3])
return {1, ARGV[3]}
