-- Hands out tasks of one shard that are due.
--
-- ARGV 4  version of the settings that the caller knows
--      5  how many at most
--      6  lease: '' the queue's, '0' none (at most once), else ms or ms.us
--      7  worker
--      8  the token of all leases, 8 bytes: a task is in a claim but once
--      9  let out what is due until: '' now, else an instant, and in
--      10 the next such instant: where now is before 9 or not before 10, the
--         caller has to look at the clock again
--      11 bytes of payloads at most; one task goes out all the same
--      12 nothing that is due after this; '' whatever is due
--      13 how far ahead what is not due yet may be handed out, in ms; not with 9
--
-- Result: 'layout'; {'settings'}; or {seconds, microseconds, woke, 'clock'}; or
-- {seconds, microseconds, woke, expired, first due left or -1, first end of a
-- lease or -1, lease in ms, set aside, end of the leases, then id and record of
-- each task}.

local meta = call('HMGET', META, 'v', 's', 'pz', 'ls', 'ma')
if foreign(meta[1]) then
  return 'layout'
end
if meta[1] and (meta[2] or '0') ~= ARGV[4] then
  return {'settings', meta[2] or '0'}
end
headEnd = first(ENDS)
local expired = 0
if headEnd and headEnd <= now then
  headDue = first(DUE)
  expired = expire(200)
end
local ahead = tonumber(ARGV[13])
local limit = now + ahead
if ARGV[9] ~= '' then
  limit = tonumber(ARGV[9])
  if now < limit or now >= tonumber(ARGV[10]) then
    return {clock[1], clock[2], expired > 0 and wake() or 0, 'clock'}
  end
end
if ARGV[12] ~= '' then
  limit = math.min(limit, tonumber(ARGV[12]))
end
local lease = ARGV[6]
if lease == '' then
  lease = meta[4] or '30000'
end
local ends = dueTime('+' .. lease) + ahead -- leases begin when tasks are due
local once = lease == '0' -- never ahead

local result = {clock[1], clock[2], 0, expired, -1, -1, 0, 0, ends}
local want, room = tonumber(ARGV[5]), tonumber(ARGV[11])
if meta[3] == '1' then
  want = 0
end
local got, aside, out = 0, 0, #result
local step = 8 -- for a start, as large ones may come
local score = format('%d', ends)
local head = ARGV[8] .. pack('>I6', ends)
local worker = ARGV[7]
while got < want and room > 0 do
  step = math.min(step, want - got)
  local members = call('ZRANGEBYSCORE', DUE, '-inf', limit, 'LIMIT', 0, step)
  if #members == 0 then
    break
  end
  local ids = {}
  for i = 1, #members do
    ids[i] = sub(members[i], 8)
  end
  local records = call('HMGET', TASKS, unpack(ids))
  local gone, adds, sets = {}, {}, {}
  local longest, k = 1, 0
  for i = 1, #members do
    local member, id, rec = members[i], ids[i], records[i]
    if room <= 0 then
      break
    end
    gone[i] = member
    local seq = sub(member, 1, 7)
    if rec and #rec >= 20 and sub(rec, 2, 8) == seq then
      if #rec > longest then
        longest = #rec
      end
      room = room - #rec
      adds[k + 1], adds[k + 2] = score, member
      sets[k + 1], sets[k + 2] = id, head .. seq .. sub(rec, 15, 20) .. worker
      k = k + 2
      result[out + 1], result[out + 2] = id, rec
      out = out + 2
      got = got + 1
    elseif rec and #rec < 20 then
      setAside(id, rec, 'the record of a task that was due can not be read')
      aside = aside + 1
    elseif not rec then -- an index without a record
      aside = aside + 1
      count('orphans', 1)
    end
  end
  call('ZREM', DUE, unpack(gone)) -- first, as a full server allows it and then the rest
  if k > 0 then
    if once then
      local done = {}
      for i = 1, #sets, 2 do
        done[#done + 1] = sets[i]
      end
      call('HDEL', TASKS, unpack(done))
    else
      call('ZADD', ENDS, unpack(adds))
      call('HSET', LEASES, unpack(sets))
    end
  end
  if #members < step then
    break -- there is no more
  end
  -- Small records by the hundred, large ones one at a time: what is read here
  -- is copied, and a script holds everybody up.
  step = math.max(1, math.min(250, math.floor(262144 / longest)))
end
result[5] = first(DUE) or -1
if expired > 0 then
  headEnd = first(ENDS)
end
if got > 0 and not once and (not headEnd or ends < headEnd) then
  headEnd = ends
end
result[6] = headEnd or -1
result[8] = aside
if expired > 0 then
  result[3] = wake()
end
return result
