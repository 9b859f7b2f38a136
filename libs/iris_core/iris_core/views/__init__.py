"""The objects of the HTTP API and of public events, and the queries for them. Pure."""
