-- What all new tasks have is the columns' default, which saves the server reading it.
INSERT INTO {task} (queue_id, state, at, due, created, max_attempts, size, id, headers, payload) VALUES ?
