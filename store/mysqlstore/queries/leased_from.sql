SELECT at FROM {task} FORCE INDEX (by_at) WHERE queue_id = ? AND state = 1 AND at >= ? ORDER BY at, seq LIMIT 1
