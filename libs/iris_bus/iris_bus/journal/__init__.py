"""The journal: commits in one or several messages, appended with a fence."""
