SELECT id, name, version, counted, settings FROM {queue} WHERE id IN (?)
