"""What becomes of plans, reports of workers, and time that has passed."""
