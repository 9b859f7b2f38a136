"""The decisions about jobs and tasks: the judgement of claims, and the consequences of changes."""
