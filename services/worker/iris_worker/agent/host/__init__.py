"""What is found out about the host."""
