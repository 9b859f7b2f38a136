"""A whole cluster on one machine: what `iris up` starts and `iris down` stops.

`programs` says which processes there are, `supervisor` keeps them, `launch` starts the supervisor and waits
until the cluster can be used, `paths` knows the files. Out of scope: what the services do. Source:
docs/design/interfaces.md#command-line.
"""
