"""Commands that change jobs and use running tasks."""
