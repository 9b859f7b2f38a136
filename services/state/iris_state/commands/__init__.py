"""What people ask for: decoding and executing commands."""
