-- Moves members of the sorted set, and their fields of the hash, into the staging
-- hash; or copies them there, and notes that.
--
-- A staged entry is "0 score payload" until it is in the store, then "1 score ".
-- Without a hash the payload is empty here: it is the member.
--
-- KEYS  lock, sorted set, staging, imported, hash (the same as the set where there
--       is none)
-- ARGV  token, how long the lock lasts in ms, "move" or "keep", 1 with a hash or 0,
--       longest payload, bytes of payload in one call, members...
-- Result: for each member a status, a score and a payload:
--   0 not in the set   1 taken      2 has no field in the hash
--   3 payload too long 4 not looked at, as the call is full
--   5 taken before
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('LOCKLOST the lock of this takeover is lost')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local set, staging, imported, hash = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local keep, hashed = ARGV[3] == 'keep', ARGV[4] == '1'
local longest, room = tonumber(ARGV[5]), tonumber(ARGV[6])
local answer, taken, stage, note, seen = {}, {}, {}, {}, {}
local function say(status, score, payload)
  answer[#answer + 1] = status
  answer[#answer + 1] = score or ''
  answer[#answer + 1] = payload or ''
end
for i = 7, #ARGV do
  local member = ARGV[i]
  local score = redis.call('ZSCORE', set, member)
  local size = hashed and redis.call('HSTRLEN', hash, member) or #member
  if not score then
    say(0)
  elseif seen[member] or keep and redis.call('HEXISTS', imported, member) == 1 then
    say(5)
  elseif size == 0 and hashed and redis.call('HEXISTS', hash, member) == 0 then
    say(2, score)
  elseif size > longest then
    say(3, score)
  elseif #taken > 0 and size > room then
    room = 0
    say(4)
  else
    local payload = hashed and redis.call('HGET', hash, member) or ''
    seen[member] = true -- a scan may bring a member twice
    taken[#taken + 1] = member
    stage[#stage + 1] = member
    stage[#stage + 1] = '0 ' .. score .. ' ' .. payload
    note[#note + 1] = member
    note[#note + 1] = score
    room = room - size
    say(1, score, payload)
  end
end
if #taken > 0 then -- at most 500, which unpack can bear
  redis.call('HSET', staging, unpack(stage))
  if keep then
    redis.call('HSET', imported, unpack(note))
  else
    redis.call('ZREM', set, unpack(taken))
    if hashed then
      redis.call('HDEL', hash, unpack(taken))
    end
  end
end
return answer
