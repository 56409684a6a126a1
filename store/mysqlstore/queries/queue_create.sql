INSERT IGNORE INTO {queue} (name) VALUES (?)
