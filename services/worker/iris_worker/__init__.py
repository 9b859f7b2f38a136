"""The worker: runs the attempts ordered for one host and reports their stages. It decides nothing
about tasks.
"""
