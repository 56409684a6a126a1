INSERT INTO {tally} (queue_id, shard, waiting, leased, dead, early, early_lease, at) VALUES ?
