-- Reads one page of an index of one shard.
--
-- ARGV 4  's' scheduled, 'r' ready, 'd' dead: by due time; 'l' leases: by their
--         end
--      5  score and
--      6  sequence after which the page begins; -1 and 0 at the start
--      7  how many at most
--      8  1: with headers and payloads
--      9  bytes at most; one task comes all the same
--
-- Result: 'layout', or {seconds, microseconds, woke, expired, more, then for each
-- id, score, record}. Of leases: id, end, lease.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local expired = expire(200)
local what = ARGV[4]
local set, low, high = DUE, '-inf', '+inf'
if what == 's' then
  low = now + 1
elseif what == 'r' then
  high = now
elseif what == 'd' then
  set = DEAD
else
  set = ENDS
end

-- The rank of the first entry that is after the given place. Entries with one
-- score lie in order of their sequence, so that the place among them is found by
-- halving.
local function rankAfter(score, seq)
  local from = call('ZCOUNT', set, '-inf', '(' .. score)
  local to = from + call('ZCOUNT', set, score, score)
  while from < to do
    local middle = math.floor((from + to) / 2)
    local member = call('ZRANGE', set, middle, middle)[1]
    if #member < 7 or unpacked('>I7', member) <= seq then -- too short: somebody else put it there
      from = middle + 1
    else
      to = middle
    end
  end
  return from
end

local from, to
local score = tonumber(ARGV[5])
if score >= 0 and (low == '-inf' or score >= low) then
  from = rankAfter(ARGV[5], tonumber(ARGV[6]))
elseif low == '-inf' then
  from = 0
else
  from = call('ZCOUNT', set, '-inf', '(' .. low)
end
to = high == '+inf' and call('ZCARD', set) or call('ZCOUNT', set, '-inf', high)

local want, room = tonumber(ARGV[7]), tonumber(ARGV[9])
local result = {clock[1], clock[2], 0, expired, 0}
local step = 1
while want > 0 and room > 0 and from < to do
  local entries = call('ZRANGE', set, from, math.min(to, from + math.min(want, step)) - 1, 'WITHSCORES')
  local longest = 1
  for i = 1, #entries, 2 do
    if room <= 0 then
      break
    end
    from = from + 1
    local id = sub(entries[i], 8)
    if set == ENDS then
      local lease = call('HGET', LEASES, id)
      if lease then
        result[#result + 1] = id
        result[#result + 1] = tonumber(entries[i + 1])
        result[#result + 1] = lease
        want = want - 1
      end
    else
      local rec = call('HGET', TASKS, id)
      local r = readRecord(rec, id)
      if r and r.member == entries[i] then
        longest = math.max(longest, #rec)
        if ARGV[8] ~= '1' then
          rec = sub(rec, 1, r.rest - 1)
        end
        room = room - #rec
        result[#result + 1] = id
        result[#result + 1] = tonumber(entries[i + 1])
        result[#result + 1] = rec
        want = want - 1
      end
    end
  end
  step = math.max(1, math.min(250, math.floor(262144 / longest)))
end
result[5] = from < to and 1 or 0
result[3] = wake()
return result
