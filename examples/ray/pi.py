"""The program of a Ray cluster: each of its nodes computes a part of pi."""

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

STEPS = 1_000_000


@ray.remote
def share(rank: int, size: int) -> float:
    """This rank's part of the integral of 4 / (1 + x * x) from 0 to 1, which is pi."""
    return sum(4 / (1 + ((step + 0.5) / STEPS) ** 2) for step in range(rank, STEPS, size)) / STEPS


ray.init()
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
parts = [
    share.options(scheduling_strategy=place).remote(rank, len(nodes))
    for rank, place in enumerate(places)
]
print(f"{len(nodes)} nodes of Ray computed pi = {sum(ray.get(parts)):.9f}", flush=True)
