"""A gang in JAX: linear regression on data that is spread over all devices of all hosts, one
process each.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import iris.jax  # noqa: F401 - tells JAX of the other members

jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
split = NamedSharding(mesh, PartitionSpec("data"))

ours = (
    np.random.default_rng(rank).normal(size=(64 * jax.local_device_count(), 3)).astype(np.float32)
)
x = jax.make_array_from_process_local_data(split, ours)
y = jax.make_array_from_process_local_data(split, ours @ np.array([1.0, -2.0, 0.5], np.float32))


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """One step of gradient descent; the mean over all hosts is a collective."""
    return weights - 0.3 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)


weights = jnp.zeros(3)
for _ in range(100):
    weights = step(weights, x, y)
if rank == 0:
    print(
        f"{size} processes, {jax.device_count()} devices: weights {np.round(np.asarray(weights), 3).tolist()}"
    )
