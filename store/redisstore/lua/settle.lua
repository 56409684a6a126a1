-- Ends or extends leases of one shard.
--
-- ARGV 4  version of the settings by which backoffs were worked out; '' none was
--      then for each: id, and token (8 bytes) .. action (1) .. what it needs:
--      a ack; b bury: error; r retry: delay (see dueTime) .. ';' .. error;
--      R the same, where a delay that ends too late is cut; s snooze: delay;
--      e release; x extend: lease in ms or ms.us, '' the queue's
--
-- Result: 'layout'; {'settings', version}; or {seconds, microseconds, woke, then
-- for each whose action was not simply an ack that was carried out three numbers:
-- its place in this call, what became of it, and a time or 0}.
-- 0 stale, 1 acked, 2 retrying, 3 dead, 4 snoozed, 5 released, 6 extended,
-- 7 due too late, 8 moving: ask again.

local meta = call('HMGET', META, 'v', 's', 'ma', 'ls')
if foreign(meta[1]) then
  return 'layout'
end
if ARGV[4] ~= '' and meta[1] and (meta[2] or '0') ~= ARGV[4] then
  return {'settings', meta[2] or '0'}
end
-- No lease of the shard is over before the first is.
headEnd = first(ENDS)
local over = headEnd and headEnd <= now
local looked = false -- whether headDue is known: acks do not change what is due

local n = (#ARGV - 4) / 2
local ids = {}
for i = 1, n do
  ids[i] = ARGV[3 + 2 * i]
end
local leases = {}
for from = 1, n, 500 do
  local part = call('HMGET', LEASES, unpack(ids, from, math.min(n, from + 499)))
  for i = 1, #part do
    leases[from + i - 1] = part[i]
  end
end

local result = {clock[1], clock[2], 0}
local ended, acked, touched = {}, {}, {}

-- Acks are the most of it and are carried out together.
local function flush()
  if #acked > 0 then
    call('ZREM', ENDS, unpack(ended))
    call('HDEL', LEASES, unpack(acked))
    call('HDEL', TASKS, unpack(acked))
    ended, acked = {}, {}
  end
end

local last, token, action
for i = 1, n do
  local id, spec, lease = ids[i], ARGV[4 + 2 * i], leases[i]
  if touched[id] then
    flush()
    lease = call('HGET', LEASES, id)
  end
  touched[id] = true
  if spec ~= last then -- many leases of one claim are told the same
    last, token, action = spec, sub(spec, 1, 8), sub(spec, 9, 9)
  end
  local code, at = 0, 0
  if lease and #lease >= 27 and sub(lease, 1, 8) == token then
    local late = over and unpacked('>I6', lease, 9) <= now
    if (late or action ~= 'a') and not looked then
      headDue, looked = first(DUE), true
    end
    if late then
      flush()
      expireOne(sub(lease, 15, 21) .. id, id)
    else
      local member = sub(lease, 15, 21) .. id
      if action == 'a' then
        ended[#ended + 1] = member
        acked[#acked + 1] = id
        if #acked >= 500 then
          flush()
        end
        code = 1
      elseif action == 'x' then
        local w = sub(spec, 10)
        if w == '' then
          w = meta[4] or '30000'
        end
        at = dueTime('+' .. w)
        code = 6
        call('ZREM', ENDS, member) -- a full server allows this, and then the rest
        call('ZADD', ENDS, at, member)
        call('HSET', LEASES, id, sub(lease, 1, 8) .. pack('>I6', at) .. sub(lease, 15))
      else
        local rec = call('HGET', TASKS, id)
        local r = readRecord(rec, id)
        local due, text
        if action == 'r' or action == 'R' then
          local semicolon = string.find(spec, ';', 10, true)
          due, text = dueTime(sub(spec, 10, semicolon - 1)), sub(spec, semicolon + 1)
          if action == 'R' then
            due = math.min(due, MAXDUE)
          end
        elseif action == 's' then
          due = dueTime(sub(spec, 10))
        elseif action == 'b' then
          text = sub(spec, 10)
        end
        if due and due > MAXDUE then
          code = 7
        else
          call('ZREM', ENDS, member)
          call('HDEL', LEASES, id)
          if not r then
            setAside(id, rec, 'the record of a leased task can not be read')
          elseif r.member == member then
            code = 5
            local dead = action == 'b'
            if action == 'b' then
              code, r.error = 3, text
            elseif action == 's' then
              code, r.due, at = 4, due, due
            elseif action ~= 'e' then
              r.failures, r.error = r.failures + 1, text
              local limit = r.max
              if limit == 0 then
                limit = tonumber(meta[3]) or 25
              end
              dead = r.failures >= limit
              if dead then
                code = 3
              else
                code, r.due, at = 2, due, due
              end
            end
            if action ~= 'e' then
              call('HSET', TASKS, id, writeRecord(r))
            end
            call('ZADD', dead and DEAD or DUE, r.due, member)
          end
        end
      end
    end
  end
  if code ~= 1 then
    local k = #result
    result[k + 1], result[k + 2], result[k + 3] = i, code, at
  end
end
flush()
if looked then
  result[3] = wake()
end
return result
