"""A whole cluster on one machine: what `iris up` starts and `iris down` stops.

`blueprint` says which processes there are, `supervisor` keeps them, `launch` starts the supervisor and waits until
the cluster can be used, `layout` knows the files. Not in this room: what the services do. Source: interfaces.md
section 2.
"""
