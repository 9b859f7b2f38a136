"""The gateway: the HTTP API and the dashboard."""
