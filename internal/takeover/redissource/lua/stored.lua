-- Notes that staged entries are in the store.
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
  local entry = redis.call('HGET', KEYS[2], ARGV[i])
  if entry then
    local score = string.match(entry, '^%d (%S+) ')
    redis.call('HSET', KEYS[2], ARGV[i], '1 ' .. score .. ' ')
    n = n + 1
  end
end
return n
