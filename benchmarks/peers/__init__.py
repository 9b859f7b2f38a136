"""The systems people use now, running the same workloads as our rows, each in an environment of its own.

Every program here is run by its peer's own Python (`make bench-peers` makes the environments) and prints one JSON
object: row to figure, in the row's own terms. None of them imports Iris.
"""
