"""From a request to a process that runs its program."""
