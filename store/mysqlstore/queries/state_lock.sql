-- A slice of one state, for purge and redrive.
SELECT {columns} FROM {task} FORCE INDEX (by_at)
WHERE queue_id = ? AND state = ? AND at >= ? AND at <= ? ORDER BY at, seq LIMIT ? FOR UPDATE SKIP LOCKED
