-- Schedules tasks into one shard.
--
-- ARGV 4  the sequence before the first of the whole batch; 0: the shard's own
--      5  1 to make the shard where there is none
--      6  places of the tasks in the batch, from 1 (3 bytes each), where there is
--         such a sequence
--      7  'n' where the ids were made up for this call, so that none is there
--      then for each task: id, options (below), headers and payload
--
-- options  flags (1 byte: 1 has a limit of attempts, 2 has headers, 8 replaces,
--          16 has a delay) .. due (6 bytes), or delay in ms (6 bytes) and
--          microseconds (2 bytes) .. limit (4 bytes, flag 1)
--
-- Result: 'layout' where the shard is of another one, 'new' where it is not
-- there; else {seconds, microseconds, woke, then place in this call and answer
-- for each task that was not simply created}. An answer is a list: {'c'}
-- created; {'r'} replaced; {'e', state, record, lease} exists; {'l'} due too late;
-- {'m'} moving, ask again; {'n'} not here, where the shard takes no new tasks.

local meta = call('HGET', META, 'v')
if foreign(meta) then
  return 'layout'
end
local n = (#ARGV - 7) / 3
local base = tonumber(ARGV[4])
if not meta and not fenced then
  if ARGV[5] ~= '1' then
    return 'new'
  end
  call('HSET', META, 'v', ARGV[1]) -- a full server refuses this: nothing is written then
end
local own = fenced and n or call('HINCRBY', META, 'q', n) -- or this

local result = {clock[1], clock[2], 0}
local adds, sets, k = {}, {}, 0
local function flush()
  if k > 0 then
    call('HSET', TASKS, unpack(sets))
    call('ZADD', DUE, unpack(adds))
    adds, sets, k = {}, {}, 0
  end
end

-- Which of the ids are there, all looked up together.
local there = {}
if ARGV[7] ~= 'n' then
  local ids = {}
  for i = 1, n do
    ids[i] = ARGV[5 + 3 * i]
  end
  for from = 1, n, 500 do
    local part = call('HMGET', TASKS, unpack(ids, from, math.min(n, from + 499)))
    for i = 1, #part do
      if part[i] then
        there[ids[from + i - 1]] = true
      end
    end
  end
end

-- What is not simply created.
local function conflict(id, seq, rec, due, replace)
  flush()
  local state, old, lease = find(id)
  if state == 'm' then
    return {'m'}
  elseif not state and fenced then
    return {'n'}
  elseif (state == 's' or state == 'l') and not replace then
    return {'e', state, old.text, lease or ''}
  end
  if state then
    unlink(state, old, id)
  end
  local answer = {'c'}
  if state == 's' or state == 'l' then
    local new = readRecord(rec, id)
    new.generation = old.generation + 1
    rec = writeRecord(new)
    answer = {'r'}
  elseif fenced then
    call('HDEL', TASKS, id)
    return {'n'}
  end
  call('HSET', TASKS, id, rec)
  call('ZADD', DUE, due, seq .. id)
  return answer
end

local created = pack('>I6', now + (clock[2] % 1000 > 0 and 1 or 0))
local places = base > 0 and ARGV[6]
local new = ARGV[7] == 'n'
local before = base > 0 and base or own - n
local at = 8
-- Of one task, and mostly of the next ones too: what its options say, and the
-- first bytes of its sequence.
local last, flags, due, score, head, middle, block, high
for i = 1, n do
  local id, options, rest = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  if options ~= last then
    last = options
    flags, due = unpacked('>BI6', options)
    local packed, limit = nil, 8
    if flags % 32 >= 16 then
      due = dueAfter(due, unpacked('>I2', options, 8))
      limit = 10
      packed = pack('>I6', due)
    else
      packed = sub(options, 2, 7)
    end
    score = format('%d', due)
    head = char(flags % 8)
    middle = created .. packed
    if flags % 2 == 1 then
      middle = middle .. ZEROS .. sub(options, limit, limit + 3)
    end
  end
  if due > MAXDUE then
    result[#result + 1] = i
    result[#result + 1] = {'l'}
  else
    local number = before + (places and unpacked('>I3', places, 3 * i - 2) or i)
    local low = number % 256
    if number - low ~= block then
      block = number - low
      high = sub(pack('>I7', number), 1, 6)
    end
    low = char(low)
    local rec = head .. high .. low .. middle .. rest
    if not fenced and (new or not there[id]) then
      if not new then
        there[id] = true
      end
      adds[k + 1], adds[k + 2] = score, high .. low .. id
      sets[k + 1], sets[k + 2] = id, rec
      k = k + 2
      if k >= 1000 then
        flush()
      end
    else
      local answer = conflict(id, high .. low, rec, score, flags % 16 >= 8)
      result[#result + 1] = i
      result[#result + 1] = answer
    end
  end
end
flush()
-- What is first is one of these, the newest, only where it is due before all
-- others; or where what was first has gone, and then this is for nothing.
local top = call('ZRANGE', DUE, 0, 0)[1]
if ended or top and #top >= 7 and unpacked('>I7', top) > before then
  tell(first(DUE), first(ENDS))
  result[3] = 1
end
return result
