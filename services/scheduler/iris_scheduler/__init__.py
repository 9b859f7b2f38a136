"""Who runs where: a pure plan from a mirror of the state service's records. It keeps nothing and writes nothing."""
