-- Forgets staged entries.
--
-- KEYS  lock, staging
-- ARGV  token, how long the lock lasts in ms, members...
-- Result: how many of them were staged.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('LOCKLOST the lock of this takeover is lost')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local n = 0
for i = 3, #ARGV do
  n = n + redis.call('HDEL', KEYS[2], ARGV[i])
end
return n
