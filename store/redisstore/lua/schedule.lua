-- Schedules tasks into one shard.
--
-- ARGV 4  the sequence before the first of the whole batch; 0: the shard's own
--      5  1 to make the shard where there is none
--      then for each task: id, when (see dueTime), options: flags (1 byte: 1 has
--      a limit of attempts, 2 has headers, 8 replaces) .. place in the batch,
--      from 1 (3 bytes) .. limit (4 bytes, flag 1), and headers and payload
--
-- Result: 'layout' where the shard is of another one, 'new' where it is not
-- there; else {seconds, microseconds, woke, answers…}. An answer is the due time
-- of a task that was created, or a list: {'r', due} replaced; {'e', state,
-- record, lease} exists; {'l'} due too late; {'m'} moving, ask again; {'n'} not
-- here, where the shard takes no new tasks.

local meta = call('HGET', META, 'v')
if foreign(meta) then
  return 'layout'
end
local n = (#ARGV - 5) / 4
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
local adds = {}
local function flush()
  if #adds > 0 then
    call('ZADD', DUE, unpack(adds))
    adds = {}
  end
end

local created = now + (clock[2] % 1000 > 0 and 1 or 0)
local at = 6
for i = 1, n do
  local id, when, options, rest = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  at = at + 4
  local due = dueTime(when)
  local answer
  if due > MAXDUE then
    answer = {'l'}
  else
    local flags = byte(options, 1)
    local replace = flags >= 8
    flags = flags % 8
    local place = i
    if base > 0 then
      place = unpacked('>I3', options, 2)
    end
    local seq = pack('>I7', (base > 0 and base or own - n) + place)
    local rec = string.char(flags) .. seq .. pack('>I6I6', created, due)
    if flags % 2 == 1 then
      rec = rec .. pack('>I4I4I4', 0, 0, 0) .. sub(options, 5, 8)
    end
    rec = rec .. rest
    if not fenced and call('HSETNX', TASKS, id, rec) == 1 then
      adds[#adds + 1] = due
      adds[#adds + 1] = seq .. id
      if #adds >= 1000 then
        flush()
      end
      answer = due
    else
      flush()
      local state, old, lease = find(id)
      if state == 'm' then
        answer = {'m'}
      elseif not state and fenced then
        answer = {'n'}
      elseif (state == 's' or state == 'l') and not replace then
        answer = {'e', state, old.text, lease or ''}
      else
        if state then
          unlink(state, old, id)
        end
        if state == 's' or state == 'l' then
          local new = readRecord(rec, id)
          new.generation = old.generation + 1
          rec = writeRecord(new)
          answer = {'r', due}
        else
          answer = due
        end
        if fenced and state == 'd' then
          call('HDEL', TASKS, id)
          answer = {'n'}
        else
          call('HSET', TASKS, id, rec)
          call('ZADD', DUE, due, seq .. id)
        end
      end
    end
  end
  result[i + 3] = answer
end
flush()
result[3] = wake()
return result
