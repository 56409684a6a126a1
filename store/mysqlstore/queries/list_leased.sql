-- Leases lie in the order of their ends and are shown in that of their due times:
-- this one sorts. There are no more of them than there are workers' hands.
SELECT {columns} FROM {task} FORCE INDEX (by_at)
WHERE queue_id = ? AND state = 1 AND (due > ? OR (due = ? AND seq > ?)) ORDER BY due, seq LIMIT ?
