DELETE FROM {tally} WHERE queue_id = ? AND shard IN (?)
