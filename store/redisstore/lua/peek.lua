-- Shows what a claim of one shard would get, so that claims over several shards
-- hand out the oldest first.
--
-- ARGV 4  how many at most
--      5  and 6: as 9 and 10 of a claim, 7 as 13
--
-- Result: 'layout'; {seconds, microseconds, woke, 'clock'}; or {seconds,
-- microseconds, woke, expired, first due or -1, first end of a lease or -1, then
-- due, sequence and bytes of each}.

local meta = call('HMGET', META, 'v', 'pz')
if foreign(meta[1]) then
  return 'layout'
end
look()
local expired = expire(200)
local limit = now + tonumber(ARGV[7])
if ARGV[5] ~= '' then
  limit = tonumber(ARGV[5])
  if now < limit or now >= tonumber(ARGV[6]) then
    return {clock[1], clock[2], wake(), 'clock'}
  end
end
local result = {clock[1], clock[2], 0, expired, first(DUE) or -1, first(ENDS) or -1}
if meta[2] ~= '1' then
  local entries = call('ZRANGEBYSCORE', DUE, '-inf', limit, 'WITHSCORES', 'LIMIT', 0, ARGV[4])
  for i = 1, #entries, 2 do
    result[#result + 1] = tonumber(entries[i + 1])
    -- What somebody else put there may be too short; a claim throws it out.
    result[#result + 1] = #entries[i] >= 7 and unpacked('>I7', entries[i]) or 0
    result[#result + 1] = call('HSTRLEN', TASKS, sub(entries[i], 8))
  end
end
if expired > 0 then
  result[3] = wake()
end
return result
