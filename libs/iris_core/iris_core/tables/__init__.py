"""Every status change of every entity, one table each; `docs/states.md` is drawn from here."""
