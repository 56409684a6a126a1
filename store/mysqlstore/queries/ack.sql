-- The acks of a batch at once. Each row is deleted only by its own token: the pairs
-- say that, the list of ids is for the index.
DELETE FROM {task} WHERE queue_id = ? AND id IN (?) AND (id, token) IN (?) AND state = 1 AND at > ?
