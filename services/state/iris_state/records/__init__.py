"""The records in memory, the changes that write them, the indexes over them and their
invariants.
"""
