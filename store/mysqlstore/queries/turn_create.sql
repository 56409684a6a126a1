INSERT IGNORE INTO {turn} (queue_id) VALUES (?)
