SELECT {columns} FROM {task} FORCE INDEX (by_at)
WHERE queue_id = ? AND state = 1 AND at >= ? AND at <= ? ORDER BY at, seq LIMIT ? FOR UPDATE SKIP LOCKED
