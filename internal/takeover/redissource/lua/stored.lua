-- Notes that staged entries are in the store.
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
local members, update = {}, {}
for i = 3, #ARGV do -- at most 500, which unpack can bear
  members[i - 2] = ARGV[i]
end
for i, entry in ipairs(redis.call('HMGET', KEYS[2], unpack(members))) do
  if entry then
    update[#update + 1] = members[i]
    update[#update + 1] = '1 ' .. string.match(entry, '^%d (%S+) ') .. ' '
  end
end
if #update > 0 then
  redis.call('HSET', KEYS[2], unpack(update))
end
return #update / 2
