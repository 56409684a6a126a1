-- The index serves the filter and the order, so that no more is locked than is
-- taken.
SELECT {columns} FROM {task} FORCE INDEX (by_at)
WHERE queue_id = ? AND state = 0 AND at <= ? AND (at > ? OR (at = ? AND seq >= ?)) ORDER BY at, seq LIMIT ? FOR UPDATE SKIP LOCKED
