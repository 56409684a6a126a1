SELECT name FROM {queue} ORDER BY name
