-- Where counting may stop for a moment: the instant of the n-th task from counted.
SELECT at FROM {task} FORCE INDEX (by_at) WHERE queue_id = ? AND state = 0 AND at >= ? AND at < ? ORDER BY at, seq LIMIT ?, 1
