"""Handles reports of workers: stages of attempts and liveness of hosts."""
