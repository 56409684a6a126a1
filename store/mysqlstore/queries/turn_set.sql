UPDATE {turn} SET pos_at = ?, pos_seq = ?, lease_at = ? WHERE queue_id = ?
