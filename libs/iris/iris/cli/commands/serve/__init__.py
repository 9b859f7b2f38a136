"""Commands for deployments."""
