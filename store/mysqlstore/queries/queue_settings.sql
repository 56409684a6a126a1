UPDATE {queue} SET version = ?, settings = ? WHERE id = ?
