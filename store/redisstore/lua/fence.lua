-- Turns a shard into one that is being emptied into another layout: from then on
-- it takes no new tasks, and only answers those who know.
--
-- ARGV 1 is the new name of its layout here, 4 the old one, which ends before
-- the '>' in the new.
--
-- Result: {seconds, microseconds, 0}.

local v = call('HGET', META, 'v')
if not v or v == ARGV[4] then
  call('HSET', META, 'v', ARGV[1])
end
return {clock[1], clock[2], 0}
