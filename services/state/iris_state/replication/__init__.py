"""Leader and standby: who writes, and how the others follow."""
