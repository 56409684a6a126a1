SELECT pos_at, pos_seq, lease_at FROM {turn} WHERE queue_id = ?
