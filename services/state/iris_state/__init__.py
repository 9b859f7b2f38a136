"""The state service: the only writer of records; it judges every claim."""
