SELECT at, seq FROM {task} FORCE INDEX (by_at)
WHERE queue_id = ? AND state = ? AND at <= ? AND (at > ? OR (at = ? AND seq > ?)) ORDER BY at, seq LIMIT ?
