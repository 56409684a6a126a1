-- Schedules tasks into one shard.
--
-- ARGV 4  the sequence before the first of the whole batch; 0: the shard's own
--      5  1 to make the shard where there is none
--      then for each task: id, options (below), headers and payload
--
-- options  flags (1 byte: 1 has a limit of attempts, 2 has headers, 8 replaces,
--          16 has a delay) .. place in the batch, from 1 (3 bytes) .. due (6
--          bytes), or delay in ms (6 bytes) and microseconds (2 bytes) ..
--          limit (4 bytes, flag 1)
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
local n = (#ARGV - 5) / 3
local base = tonumber(ARGV[4])
if not meta and not fenced then
  if ARGV[5] ~= '1' then
    return 'new'
  end
  call('HSET', META, 'v', ARGV[1]) -- a full server refuses this: nothing is written then
end
local own = fenced and n or call('HINCRBY', META, 'q', n) -- or this
expire(100)
look()

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
local there, ids = {}, {}
for i = 1, n do
  ids[i] = ARGV[3 + 3 * i]
end
for from = 1, n, 500 do
  local part = call('HMGET', TASKS, unpack(ids, from, math.min(n, from + 499)))
  for i = 1, #part do
    if part[i] then
      there[ids[from + i - 1]] = true
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
local at = 6
local before = base > 0 and base or own - n
for i = 1, n do
  local id, options, rest = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  local flags, placed, due = unpacked('>BI3I6', options)
  local packed
  local limit = 11
  if flags >= 16 then
    due = dueAfter(due, unpacked('>I2', options, 11))
    packed = pack('>I6', due)
    flags = flags - 16
    limit = 13
  else
    packed = sub(options, 5, 10)
  end
  if due > MAXDUE then
    result[#result + 1] = i
    result[#result + 1] = {'l'}
  else
    local place = base > 0 and placed or i
    local replace = flags >= 8
    flags = flags % 8
    local seq = pack('>I7', before + place)
    local rec
    if flags % 2 == 1 then
      rec = string.char(flags) .. seq .. created .. packed .. ZEROS .. sub(options, limit, limit + 3) .. rest
    else
      rec = string.char(flags) .. seq .. created .. packed .. rest
    end
    if not fenced and not there[id] then
      there[id] = true
      adds[k + 1], adds[k + 2] = due, seq .. id
      sets[k + 1], sets[k + 2] = id, rec
      k = k + 2
      if k >= 1000 then
        flush()
      end
    else
      local answer = conflict(id, seq, rec, due, replace)
      result[#result + 1] = i
      result[#result + 1] = answer
    end
  end
end
flush()
result[3] = wake()
return result
