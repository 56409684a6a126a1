-- One statement, so that all of it is of one moment: what was counted, what was
-- not counted yet (from counted to now), and, if the clock went back, what was
-- counted too early.
SELECT q.counted,
    SUM(t.waiting), SUM(IF(t.at IS NULL, t.ahead, IF(t.at < q.counted, t.waiting, 0))), SUM(t.leased), SUM(t.dead),
    (SELECT COUNT(*) FROM {task} FORCE INDEX (by_at) WHERE queue_id = ? AND state = 0 AND at >= ? AND at <= ?),
    (SELECT COUNT(*) FROM {task} FORCE INDEX (by_at) WHERE queue_id = ? AND state = 0 AND at > ? AND at < ?)
FROM {queue} q JOIN {tally} t ON t.queue_id = q.id WHERE q.id = ? GROUP BY q.id, q.counted
