"""The gateway: the HTTP API, the dashboard, the command line and the client."""
