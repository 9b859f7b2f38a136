"""Finds misconfigurations of a cluster: `collect` gathers facts, `checks` judges them, `iris
doctor` prints it.
"""
