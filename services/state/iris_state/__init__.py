"""The state service: the only writer of records, and the judge of every budget."""
