-- Counts the tasks of one shard.
--
-- Result: 'layout', or {seconds, microseconds, woke, expired, scheduled, ready,
-- leased, dead, first due or -1, first due that is to come or -1, mended,
-- orphans, set aside}.

if foreign(call('HGET', META, 'v')) then
  return 'layout'
end
look()
local expired = expire(200)
local all = call('ZCARD', DUE)
local ready = call('ZCOUNT', DUE, '-inf', now)
local coming = call('ZRANGE', DUE, ready, ready, 'WITHSCORES')
local found = call('HMGET', META, 'mended', 'orphans', 'aside')
return {
  clock[1], clock[2], wake(), expired, all - ready, ready, call('ZCARD', ENDS), call('ZCARD', DEAD),
  ready > 0 and first(DUE) or -1, tonumber(coming[2]) or -1,
  tonumber(found[1]) or 0, tonumber(found[2]) or 0, tonumber(found[3]) or 0,
}
