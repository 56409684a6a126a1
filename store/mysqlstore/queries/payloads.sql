SELECT seq, large FROM {task} WHERE seq IN (?)
