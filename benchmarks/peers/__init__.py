"""Other systems that run the workloads of our rows, each in its own environment.

Every program here is run by its peer's own Python (`make bench-peers` makes the environments) and
prints one JSON
object: row to figure, in the row's own terms. None of them imports Iris.
"""
