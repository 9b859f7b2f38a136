"""Virtual environments of tasks: built once per host and content, kept, and deleted when they are
not used.
"""
