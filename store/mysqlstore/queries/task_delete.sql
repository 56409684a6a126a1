DELETE FROM {task} WHERE seq IN (?)
