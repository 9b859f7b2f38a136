"""Which specifications, changes and actions are accepted, and the words of a refusal. Pure."""
