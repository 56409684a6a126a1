UPDATE {task} SET ? WHERE seq IN (?)
