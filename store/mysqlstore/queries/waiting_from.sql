-- The first tasks that wait, those that others have locked included.
SELECT at, seq FROM {task} FORCE INDEX (by_at)
WHERE queue_id = ? AND state = 0 AND (at > ? OR (at = ? AND seq >= ?)) ORDER BY at, seq LIMIT ?
