-- Rows that are locked are those of transactions which are about to end: they are
-- for another time.
SELECT shard, waiting, ahead, leased, dead, early, early_lease, at FROM {tally} WHERE queue_id = ? ORDER BY shard LIMIT ? FOR UPDATE SKIP LOCKED
