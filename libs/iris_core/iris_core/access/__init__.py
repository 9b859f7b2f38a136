"""Who may do what: actors, tokens, and the roles on the bus. Pure."""
