SELECT MIN(early), MIN(early_lease), COUNT(*) FROM {tally} WHERE queue_id = ?
