SELECT seq, headers, payload FROM {task} WHERE seq IN (?)
