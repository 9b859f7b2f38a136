"""What workers report: stages of attempts and liveness of hosts."""
