"""What is found out about the host: devices, limits in force, metadata, warnings."""
