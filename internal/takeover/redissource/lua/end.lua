-- Gives the lock back, and forgets what the takeover was about where nothing of it
-- is left.
--
-- KEYS  lock, info, staging
-- ARGV  token
-- Result: 1, or 0 where the lock was another's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if redis.call('HLEN', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[2])
end
redis.call('DEL', KEYS[1])
return 1
