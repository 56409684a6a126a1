SELECT seq FROM {task} WHERE ?
