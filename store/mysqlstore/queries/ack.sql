-- The acks of one claim at once: each of its rows has its token.
DELETE FROM {task} WHERE ? AND token = ? AND state = 1 AND at > ?
