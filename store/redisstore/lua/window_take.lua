-- Takes what is claimable by a window. What is taken stays in it, among the leases,
-- at the time at which it is to be tried again if nothing is heard of it: so that a
-- claimer that dies takes nothing with it. Leases that have ended come first and
-- alone: only the truth knows when their tasks were due, and so their place in the
-- order.
--
-- KEYS  1 window, 2 near, 3 wake, 4 tender, 5 ends
-- ARGV  1 now, 2 how many at most (0: only look), 3 when to try again, and as much
--       later as a task is due after now, 4 until when tasks are due that are taken
--
-- Result: {generation, version, edge, loaded, whole, next or -1, 1 if they are ends
-- of leases, members…}

local w = redis.call('HMGET', KEYS[1], 'gen', 'ver', 'edge', 'loaded')
local result = {w[1] or 0, w[2] or 0, w[3] or 0, w[4] or 0, 0, -1, 0}
if not w[1] or tonumber(w[4]) < tonumber(ARGV[4]) then
  return result
end
result[5] = 1
local now, again = tonumber(ARGV[1]), tonumber(ARGV[3])
local members, later = {}, {}
if ARGV[2] ~= '0' then
  members = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', ARGV[1], 'LIMIT', 0, 1000)
end
if #members > 0 then
  result[7] = 1
elseif ARGV[2] ~= '0' then
  local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[4], 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]))
  for i = 1, #found, 2 do
    members[#members + 1] = found[i]
    -- Both instants were rounded: a millisecond early is better than late.
    later[#members] = math.max(0, tonumber(found[i + 1]) - now - 1)
  end
end
if #members > 0 then
  local adds = {}
  for i = 1, #members do
    result[7 + i] = members[i]
    adds[#adds + 1] = string.format('%d', again + (later[i] or 0))
    adds[#adds + 1] = members[i]
  end
  redis.call('ZREM', KEYS[2], unpack(members))
  redis.call('ZADD', KEYS[5], unpack(adds))
end
for _, key in ipairs({KEYS[2], KEYS[5]}) do
  local at = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if at and (result[6] == -1 or tonumber(at) < tonumber(result[6])) then
    result[6] = at
  end
end
return result
