"""Views of jobs, their tasks and sessions, their history and the queue."""
