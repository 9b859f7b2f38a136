"""Which workers and groups have room, given quotas, reservations and nominated places. It assigns
nothing.
"""
