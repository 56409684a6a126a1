-- Puts tasks into a window, moves them in it, or takes them out of it.
--
-- KEYS  1 window, 2 near, 3 wake, 4 tender, 5 ends
-- ARGV  1 how to wake, 2 who asks, 3 now
--       4 'apply': what is after the edge, or neither waits nor is leased, is not in
--         the window
--         'load': what is in the window already stays as it is there
--         'mend': that too, but where it is due and is there as leased for longer
--       5 for load and mend: the generation that is meant, and nothing is done in
--         another
--       then of each: 's' it waits, 'l' it is leased, '' neither; time; member
--
-- Result: {generation, version, edge, loaded, how many were put in or moved, 1 if
-- something is claimable earlier than anything was}

local w = redis.call('HMGET', KEYS[1], 'gen', 'ver', 'edge', 'loaded')
local result = {w[1] or 0, w[2] or 0, w[3] or 0, w[4] or 0, 0, 0}
local how = ARGV[4]
if not w[1] or how ~= 'apply' and w[1] ~= ARGV[5] then
  return result
end
local NEAR, ENDS = KEYS[2], KEYS[5]
local function first()
  local due = tonumber(redis.call('ZRANGE', NEAR, 0, 0, 'WITHSCORES')[2])
  local ends = tonumber(redis.call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')[2])
  return due and ends and math.min(due, ends) or due or ends
end
local before = first()
local edge, now = tonumber(w[3]), tonumber(ARGV[3])
local adds = {[NEAR] = {}, [ENDS] = {}}
local rems = {[NEAR] = {}, [ENDS] = {}}
local changed = 0
local function put(into, from, at, member)
  local a, r = adds[into], rems[from]
  a[#a + 1] = at
  a[#a + 1] = member
  r[#r + 1] = member
  changed = changed + 1
end
for i = 6, #ARGV, 3 do
  local state, at, member = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local into, from = NEAR, ENDS
  if state == 'l' then
    into, from = ENDS, NEAR
  end
  if how == 'apply' then
    if state ~= '' and tonumber(at) <= edge then
      put(into, from, at, member)
    else
      for _, r in pairs(rems) do
        r[#r + 1] = member
      end
    end
  else
    local due, ends = redis.call('ZSCORE', NEAR, member), redis.call('ZSCORE', ENDS, member)
    if not due and not ends
      or how == 'mend' and state == 's' and ends and tonumber(at) <= now and tonumber(ends) > now
      or how == 'mend' and state == 's' and due and tonumber(at) <= now and tonumber(due) > now then
      put(into, from, at, member)
    end
  end
end
for key, list in pairs(rems) do
  if #list > 0 then
    redis.call('ZREM', key, unpack(list))
  end
end
for key, list in pairs(adds) do
  if #list > 0 then
    redis.call('ZADD', key, unpack(list))
  end
end
if changed > 0 then
  result[2] = redis.call('HINCRBY', KEYS[1], 'ver', 1)
  local after = first()
  if after and (not before or after < before) then
    result[6] = 1
    if ARGV[1] == 's' then
      redis.call('SPUBLISH', KEYS[3], ARGV[2])
    elseif ARGV[1] == 'p' then
      redis.call('PUBLISH', KEYS[3], ARGV[2])
    elseif ARGV[1] == 'k' then
      redis.call('SET', KEYS[3], ARGV[2], 'PX', math.max(1, math.min(after - now, 86400000)))
    end
  end
end
result[5] = changed
return result
