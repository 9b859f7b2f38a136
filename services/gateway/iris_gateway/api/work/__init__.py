"""The endpoints of jobs and tasks: submission, dry runs, code, output, executions."""
