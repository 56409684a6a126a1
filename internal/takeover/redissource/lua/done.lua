-- Forgets staged entries.
--
-- KEYS  lock, staging
-- ARGV  token, how long the lock lasts in ms, members...
-- Result: how many of them were staged.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('LOCKLOST the lock of this takeover is lost')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if #ARGV == 2 then
  return 0
end
local members = {}
for i = 3, #ARGV do -- at most 500, which unpack can bear
  members[i - 2] = ARGV[i]
end
return redis.call('HDEL', KEYS[2], unpack(members))
