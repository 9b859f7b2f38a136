"""What Linux does for processes and their descendants."""
