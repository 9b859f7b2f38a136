"""Pages for people: complete HTML from the server, refreshed by a small script where there is one."""
