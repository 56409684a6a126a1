-- How many tasks become ahead when counted moves on from the first to the second
-- instant; those whose counters have an instant of their own are so by it.
SELECT (SELECT COUNT(*) FROM {task} FORCE INDEX (by_at) WHERE queue_id = ? AND state = 0 AND at >= ? AND at < ?)
    - (SELECT COALESCE(SUM(waiting), 0) FROM {tally} WHERE queue_id = ? AND at >= ? AND at < ?)
