SELECT id, name, version, counted, settings FROM {queue} WHERE name IN (?)
