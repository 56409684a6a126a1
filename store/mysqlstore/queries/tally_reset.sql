UPDATE {tally} SET early = 9223372036854775807, early_lease = 9223372036854775807 WHERE queue_id = ? AND shard IN (?)
