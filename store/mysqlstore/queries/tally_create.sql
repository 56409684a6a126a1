INSERT IGNORE INTO {tally} (queue_id, shard) VALUES ?
