UPDATE {queue} SET counted = ? WHERE id = ?
