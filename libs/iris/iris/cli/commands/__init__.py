"""One module per command of `iris`; each is imported when its command is called."""
