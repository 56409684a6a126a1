-- Forgets tasks that have landed elsewhere.
--
-- ARGV from 4: ids
--
-- Result: 'layout', or {seconds, microseconds, 0, tasks still here}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
for i = 4, #ARGV do
  if call('HDEL', MOVING, ARGV[i]) == 1 then
    call('HDEL', TASKS, ARGV[i])
  end
end
return {clock[1], clock[2], 0, call('HLEN', TASKS)}
