INSERT INTO {task} (queue_id, state, at, due, created, generation, failures, lost, max_attempts, size, id, last_error, big, headers, payload, large) VALUES ?
