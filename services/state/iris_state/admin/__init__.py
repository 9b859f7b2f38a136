"""Verifies, repairs, backs up and restores stored data: ``python -m iris_state.admin``, started by
`iris admin`.

`survey` and `salvage` decide, `examine` reads a cluster, `repair` replaces damaged data, `archive`
is the file of a backup. Source: docs/adr/0019-damaged-data.md.
"""
