"""Which templates the launcher is asked for."""
