UPDATE {task} SET ? WHERE ?
