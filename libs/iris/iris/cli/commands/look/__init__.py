"""Commands that show what there is and why."""
