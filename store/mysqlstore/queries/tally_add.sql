INSERT INTO {tally} (queue_id, shard, waiting, ahead, leased, dead, early, early_lease) VALUES ?
ON DUPLICATE KEY UPDATE waiting = waiting + VALUES(waiting), ahead = ahead + VALUES(ahead), leased = leased + VALUES(leased),
    dead = dead + VALUES(dead), early = LEAST(early, VALUES(early)), early_lease = LEAST(early_lease, VALUES(early_lease))
