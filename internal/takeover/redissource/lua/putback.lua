-- Undoes take.lua for entries that the store does not take. Where a producer has
-- written a member anew meanwhile, that one stays.
--
-- KEYS  lock, sorted set, staging, imported, hash
-- ARGV  token, how long the lock lasts in ms, "move" or "keep", 1 with a hash or 0,
--       members...
-- Result: how many of them were staged.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('LOCKLOST the lock of this takeover is lost')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local n = 0
for i = 5, #ARGV do
  local member = ARGV[i]
  local entry = redis.call('HGET', KEYS[3], member)
  if entry then
    if ARGV[3] == 'keep' then
      redis.call('HDEL', KEYS[4], member)
    else
      local score, payload = string.match(entry, '^0 (%S+) (.*)$')
      redis.call('ZADD', KEYS[2], 'NX', score, member)
      if ARGV[4] == '1' then
        redis.call('HSETNX', KEYS[5], member, payload)
      end
    end
    redis.call('HDEL', KEYS[3], member)
    n = n + 1
  end
end
return n
