"""The dashboard: HTML pages rendered by the server, refreshed by a small script."""
