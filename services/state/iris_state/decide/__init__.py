"""The decisions: the machine with its rounds, the judgement of claims, and the consequences of
changes.
"""
