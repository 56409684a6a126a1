-- Takes tasks out of a shard that is being emptied, to be moved: nobody gets
-- them from then on until they have landed elsewhere. Those that were taken before
-- and have not been dropped come first, so that whoever goes on after a crash
-- finds them. Leased tasks stay until their lease ends.
--
-- ARGV 4  how many at most
--      5  bytes at most; one task comes all the same
--
-- Result: 'layout', or {seconds, microseconds, 0, tasks still here besides, then
-- id, state and record of each}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
expire(200)
local result = {clock[1], clock[2], 0, 0}
local room, left = tonumber(ARGV[5]), tonumber(ARGV[4])
local function give(id, state, rec)
  result[#result + 1] = id
  result[#result + 1] = state
  result[#result + 1] = rec
  room = room - #rec
  left = left - 1
end
if call('HLEN', MOVING) > 0 then
  local all = call('HGETALL', MOVING)
  for i = 1, #all, 2 do
    local rec = call('HGET', TASKS, all[i])
    if rec then
      give(all[i], all[i + 1], rec)
    else
      call('HDEL', MOVING, all[i])
    end
  end
else
  for _, from in ipairs({{DUE, 's'}, {DEAD, 'd'}}) do
    while left > 0 and room > 0 do
      local members = call('ZRANGE', from[1], 0, math.min(left, 20) - 1)
      if #members == 0 then
        break
      end
      for i = 1, #members do
        if room <= 0 then
          break
        end
        local id = sub(members[i], 8)
        local rec = call('HGET', TASKS, id)
        local r = readRecord(rec, id)
        call('ZREM', from[1], members[i])
        if r and r.member == members[i] then
          call('HSET', MOVING, id, from[2])
          give(id, from[2], rec)
        elseif rec and not r then
          setAside(id, rec, 'the record can not be read')
        else
          count('orphans', 1)
        end
      end
    end
  end
end
result[4] = call('HLEN', TASKS) - (#result - 4) / 3
return result
