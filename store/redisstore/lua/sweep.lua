-- Looks at one slice of one of a shard's keys for what should not exist, such as
-- a careless restore or a hand leaves behind.
--
-- ARGV 4  't' records, 'l' leases, 'd' due, 'e' ends of leases, 'x' dead
--      5  cursor, '0' at the start
--      6  about how many
--
-- Result: 'layout', or {seconds, microseconds, woke, next cursor (a string; '0'
-- at the end), bytes read, put right, of no use and removed, set aside}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local mended, orphans, aside, bytes = 0, 0, 0, 0
local what = ARGV[4]
local sets = {d = DUE, e = ENDS, x = DEAD}

-- A record is in exactly one index. One that is in none is put back into due by
-- find: it says itself when it is due.
local function checkRecord(id, rec)
  local r = readRecord(rec, id)
  if not r then
    call('ZREM', ENDS, (sub(rec, 2, 8)) .. id)
    setAside(id, rec, 'the record can not be read')
    aside = aside + 1
    return
  end
  local before = tonumber(call('HGET', META, 'mended')) or 0
  local state, now_, lease = find(id)
  if (tonumber(call('HGET', META, 'mended')) or 0) > before then
    mended = mended + 1
    return
  end
  local due, ends, dead = call('ZSCORE', DUE, r.member), call('ZSCORE', ENDS, r.member), call('ZSCORE', DEAD, r.member)
  local changed = 0
  if state == 'l' then
    local until_ = unpacked('>I6', lease, 9)
    if not ends or tonumber(ends) ~= until_ then -- it would never run out
      call('ZADD', ENDS, until_, r.member)
      changed = 1
    end
    changed = changed + call('ZREM', DUE, r.member) + call('ZREM', DEAD, r.member)
  elseif state == 's' then
    changed = call('ZREM', ENDS, r.member) + call('ZREM', DEAD, r.member)
    -- Of two due times the later is right or late, and never early.
    if due and tonumber(due) ~= now_.due then
      now_.due = math.max(tonumber(due), now_.due)
      call('HSET', TASKS, id, writeRecord(now_))
      call('ZADD', DUE, now_.due, r.member)
      changed = 1
    end
  elseif state == 'd' then
    changed = call('ZREM', ENDS, r.member)
  end
  if changed > 0 then
    count('mended', 1)
    mended = mended + 1
  end
end

local page
if what == 't' or what == 'l' then
  page = call('HSCAN', what == 't' and TASKS or LEASES, ARGV[5], 'COUNT', ARGV[6])
  for i = 1, #page[2], 2 do
    local id, text = page[2][i], page[2][i + 1]
    bytes = bytes + #text
    if what == 't' then
      checkRecord(id, text)
    elseif call('HEXISTS', TASKS, id) == 0 then
      call('ZREM', ENDS, sub(text, 15, 21) .. id)
      call('HDEL', LEASES, id)
      count('orphans', 1)
      orphans = orphans + 1
    end
  end
else
  local set = sets[what]
  page = call('ZSCAN', set, ARGV[5], 'COUNT', ARGV[6])
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    local id = sub(member, 8)
    bytes = bytes + #member
    local wrong
    if what == 'e' then
      local lease = call('HGET', LEASES, id)
      wrong = not lease or sub(lease, 15, 21) ~= sub(member, 1, 7)
    end
    -- A record that is there and is another one has an entry of its own.
    if wrong or call('HEXISTS', TASKS, id) == 0 then
      call('ZREM', set, member)
      count('orphans', 1)
      orphans = orphans + 1
    end
  end
end
return {clock[1], clock[2], wake(), page[1], bytes, mended, orphans, aside}
