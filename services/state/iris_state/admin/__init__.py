"""Looking after stored data by hand: verify, repair, backup, restore. ``python -m iris_state.admin``, by `iris admin`.

`survey` and `salvage` decide, `examine` reads a cluster, `repair` replaces what is damaged, `archive` is the file of a
backup. Source: docs/adr/0019-damaged-data.md.
"""
