-- Takes tasks of another store into one shard, as they were there.
--
-- ARGV 4 and 5: as for schedule
--      then for each task: id, state ('s' or 'd') .. place in the batch, from 1
--      (3 bytes) .. flags of the record (1 byte), and what comes after the
--      sequence in the record
--
-- Result: 'layout', 'new', or {seconds, microseconds, woke, then for each the due
-- time where it was created, else an answer as of schedule}.

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
  call('HSET', META, 'v', ARGV[1])
end
local own = fenced and n or call('HINCRBY', META, 'q', n)
if base == 0 then
  base = own - n
end
look()
local result = {clock[1], clock[2], 0}
local at = 6
for i = 1, n do
  local id, spec, rest = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  local state, old, lease = find(id)
  if state == 'm' then
    result[i + 3] = {'m'}
  elseif state then
    result[i + 3] = {'e', state, old.text, lease or ''}
  elseif fenced then
    result[i + 3] = {'n'}
  else
    local place = i
    if tonumber(ARGV[4]) > 0 then
      place = unpacked('>I3', spec, 2)
    end
    local seq = pack('>I7', base + place)
    local due = unpacked('>I6', rest, 7)
    call('HSET', TASKS, id, sub(spec, 5, 5) .. seq .. rest)
    call('ZADD', sub(spec, 1, 1) == 'd' and DEAD or DUE, due, seq .. id)
    result[i + 3] = due
  end
end
result[3] = wake()
return result
