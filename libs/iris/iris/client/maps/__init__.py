"""`Client.map` and `iris.Executor`: calls of a function as tasks of a job, and their results."""
