"""The scheduler: makes plans from a mirror of the state service's records. It stores nothing
durable.
"""
