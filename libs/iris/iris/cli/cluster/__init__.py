"""`iris up` and `iris down` at a terminal: start a cluster, tell its state, end it."""
