SELECT id, seq, at, state FROM {task} FORCE INDEX (by_id) WHERE queue_id = ? AND id IN (?)
