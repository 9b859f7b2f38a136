"""Providers: what talks to a cloud, to programs, or to this machine."""
