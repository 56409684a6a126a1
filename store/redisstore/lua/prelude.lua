-- What all scripts on a shard begin with.
--
-- KEYS, the same for each script, all with the shard's hash tag:
--   1 meta    hash: v layout, q sequence, settings (s version, ml max_lost,
--             ma max_attempts, ls lease in ms, pz paused), counters
--   2 tasks   hash: id -> record
--   3 due     sorted set: scheduled and ready tasks, member -> due
--   4 leases  hash: id -> lease
--   5 ends    sorted set: leased tasks, member -> end of the lease
--   6 dead    sorted set: dead tasks, member -> due
--   7 moving  hash: tasks on their way to another layout, id -> state; in the
--             new layout those that have landed
--   8 aside   hash: what could not be read, id -> reason and record
--   9 wake    channel, or alarm key
--
-- ARGV of each script: 1 layout, 2 how to wake, 3 who asks; its own from 4 on.
--
-- member  sequence (7 bytes) .. id: equal scores lie in order of scheduling
-- record  flags (1) .. sequence (7) .. created (6) .. due (6)
--         .. counters: generation, failures, lost, max attempts (4 each; flag 1)
--         .. error: length (2) .. text (flag 4)
--         .. headers (flag 2) and payload, which only the client reads
-- lease   token (8) .. end (6) .. sequence (7) .. due (6) .. worker
--
-- Each call of Redis from a script costs a microsecond or two, and so does a number
-- that is given to one: it is printed with 17 digits, and read again. What is
-- called for each task of a batch gets the arguments of many tasks at once, and
-- scores as text.
--
-- Times are Unix milliseconds; numbers in records are big-endian. A script's
-- first write is always one that frees memory or one that a full server
-- refuses, so that nothing is ever half written.

local META, TASKS, DUE, LEASES, ENDS, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local MOVING, ASIDE, WAKE = KEYS[7], KEYS[8], KEYS[9]
local call, sub, byte, char, format = redis.call, string.sub, string.byte, string.char, string.format
local pack, unpacked = struct.pack, struct.unpack
local MAXDUE = 253402300799999

local clock = time()
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function first(set)
  local r = call('ZRANGE', set, 0, 0, 'WITHSCORES')
  return tonumber(r[2])
end

local headDue, headEnd
local ended = false -- whether a lease has been ended here, which may have made something ready

-- Remembers what was first, for wake.
local function look()
  headDue, headEnd = first(DUE), first(ENDS)
end

-- Tells those who wait that something is due earlier than it was.
local function tell(due, ends)
  local how = ARGV[2]
  if how == 's' then
    call('SPUBLISH', WAKE, ARGV[3])
  elseif how == 'p' then
    call('PUBLISH', WAKE, ARGV[3])
  elseif how == 'k' then
    local at = math.min(due or ends, ends or due)
    call('SET', WAKE, ARGV[3], 'PX', math.max(1, math.min(at - now, 86400000)))
  end
end

-- The same, where that is so. look comes before the first change.
local function wake()
  local due, ends = first(DUE), first(ENDS)
  if due and (not headDue or due < headDue) or ends and (not headEnd or ends < headEnd) then
    tell(due, ends)
    return 1
  end
  return 0
end

-- When something is due after a delay of ms and us. What is finer than a
-- millisecond is rounded up, but for now.
local function dueAfter(ms, us)
  if ms + us == 0 then
    return now
  end
  return now + ms + math.ceil((clock[2] % 1000 + us) / 1000)
end

-- When something is due: at an instant "1234", or after a delay, "+1234" ms or
-- "+1234.567" ms.
local function dueTime(w)
  if byte(w, 1) ~= 43 then
    return tonumber(w)
  end
  local dot = string.find(w, '.', 1, true)
  if not dot then
    return dueAfter(tonumber(sub(w, 2)), 0)
  end
  return dueAfter(tonumber(sub(w, 2, dot - 1)), tonumber(sub(w, dot + 1)))
end

local ZEROS = string.rep('\0', 12) -- generation, failures and lost of a new task
local COUNTERS = 21 -- where counters begin in a record, if there are any

-- Reads what scripts need of a record; nil where it is not one.
local function readRecord(rec, id)
  if not rec or #rec < 20 then
    return nil
  end
  local r = {flags = byte(rec, 1), seq = sub(rec, 2, 8), generation = 0, failures = 0, lost = 0, max = 0}
  if r.flags > 7 then
    return nil
  end
  r.created, r.due = unpacked('>I6I6', rec, 9)
  local at = COUNTERS
  if r.flags % 2 == 1 then
    if #rec < at + 15 then
      return nil
    end
    r.generation, r.failures, r.lost, r.max = unpacked('>I4I4I4I4', rec, at)
    at = at + 16
  end
  if r.flags >= 4 then
    if #rec < at + 1 then
      return nil
    end
    local n = unpacked('>I2', rec, at)
    if #rec < at + 1 + n then
      return nil
    end
    r.error = sub(rec, at + 2, at + 1 + n)
    at = at + 2 + n
  end
  r.rest = at
  r.member = r.seq .. id
  r.text = rec
  return r
end

local function writeRecord(r)
  local flags = r.flags % 4 - r.flags % 2 -- headers stay
  local counters, err = '', ''
  if r.generation + r.failures + r.lost + r.max > 0 then
    flags = flags + 1
    counters = pack('>I4I4I4I4', r.generation, r.failures, r.lost, r.max)
  end
  if r.error and r.error ~= '' then
    flags = flags + 4
    err = pack('>I2', #r.error) .. r.error
  end
  return string.char(flags) .. r.seq .. pack('>I6I6', r.created, r.due) .. counters .. err .. sub(r.text, r.rest)
end

local function count(what, n)
  call('HINCRBY', META, what, n)
end

-- Sets a record aside that can not be read, out of everybody's way. HDEL first:
-- it is allowed on a full server, and what follows then is too.
local function setAside(id, rec, why)
  call('HDEL', TASKS, id)
  call('HDEL', LEASES, id)
  if rec then
    call('HSET', ASIDE, id, why .. '\n' .. rec)
  end
  count('aside', 1)
end

local maxLost -- read where it is needed, once

-- Ends one lease whose time is over.
local function expireOne(member, id)
  ended = true
  call('ZREM', ENDS, member)
  local lease = call('HGET', LEASES, id)
  if lease and sub(lease, 15, 21) ~= sub(member, 1, 7) then
    return -- an entry left over: the lease is another one
  end
  call('HDEL', LEASES, id)
  local rec = call('HGET', TASKS, id)
  local r = readRecord(rec, id)
  if not r then
    return setAside(id, rec, 'the record of a leased task can not be read')
  end
  if r.member ~= member then
    return
  end
  r.lost = r.lost + 1
  maxLost = maxLost or tonumber(call('HGET', META, 'ml')) or 10
  if r.lost >= maxLost then
    r.error = 'lease expired'
    call('ZADD', DEAD, r.due, member)
  else
    call('ZADD', DUE, r.due, member)
  end
  call('HSET', TASKS, id, writeRecord(r))
end

-- Ends up to limit leases whose time is over, and says how many.
local function expire(limit)
  local members = call('ZRANGEBYSCORE', ENDS, '-inf', now, 'LIMIT', 0, limit)
  for i = 1, #members do
    expireOne(members[i], sub(members[i], 8))
  end
  return #members
end

-- The lease of a task, nil where it has none or its time is over: then it is
-- ended.
local function leaseOf(id)
  local text = call('HGET', LEASES, id)
  if not text then
    return nil
  end
  if #text < 27 then -- written by something else
    call('HDEL', LEASES, id)
    return nil
  end
  local ends = unpacked('>I6', text, 9)
  if ends <= now then
    expireOne(sub(text, 15, 21) .. id, id)
    return nil
  end
  return text, ends
end

-- Where a task is: 's' in due, 'l' leased, 'd' dead, 'm' moving to another
-- layout, or nil. A record that is in no index, as after a careless restore, is
-- put back into due: it says itself when it is due.
local function find(id)
  local lease = leaseOf(id)
  local rec = call('HGET', TASKS, id)
  if not rec then
    if lease then
      call('ZREM', ENDS, sub(lease, 15, 21) .. id)
      call('HDEL', LEASES, id)
    end
    return nil
  end
  local r = readRecord(rec, id)
  if not r then
    setAside(id, rec, 'the record can not be read')
    return nil
  end
  if lease then
    return 'l', r, lease
  end
  if call('ZSCORE', DUE, r.member) then
    return 's', r
  end
  if call('ZSCORE', DEAD, r.member) then
    return 'd', r
  end
  local moves = call('HGET', MOVING, id)
  if moves and moves ~= 'landed' then
    return 'm', r
  end
  call('ZREM', ENDS, r.member)
  call('ZADD', DUE, r.due, r.member)
  count('mended', 1)
  return 's', r
end

-- Takes a task out of the index of its state; its record stays.
local function unlink(state, r, id)
  if state == 's' then
    call('ZREM', DUE, r.member)
  elseif state == 'd' then
    call('ZREM', DEAD, r.member)
  elseif state == 'l' then
    call('ZREM', ENDS, r.member)
    call('HDEL', LEASES, id)
  end
end

-- A shard that is being emptied into another layout calls its own "1/4>2/16": it
-- takes no new tasks, and only answers those who know.
local fenced = string.find(ARGV[1], '>', 1, true)

-- Whether the shard belongs to the layout that the caller knows. A shard that
-- is not there at all is right for who only looks.
local function foreign(layout)
  return layout and layout ~= ARGV[1]
end
