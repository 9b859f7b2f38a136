"""A cluster on one machine, started by `iris up` and stopped by `iris down`.

`programs` lists its processes, `supervisor` runs them, `launch` starts the supervisor and waits
until the cluster is ready, `paths` has the paths of its files. Out of scope: what the services do.
Source: docs/operating.md#one-machine.
"""
