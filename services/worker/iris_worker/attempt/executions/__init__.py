"""Commands that people execute beside tasks."""
