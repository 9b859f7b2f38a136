"""A coscheduled job: the tasks meet at the coordinator's address and add up what each has computed.

They can, because all of them run at the same time on one slice, and each knows its rank and the
others.
"""

import os
import socket
import time

RANK, SIZE = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
HOST, _, PORT = os.environ["IRIS_COORDINATOR_ADDRESS"].rpartition(":")
STEPS = 1_000_000


def share() -> float:
    """This rank's part of the integral of 4 / (1 + x * x) from 0 to 1, which is pi."""
    return sum(4 / (1 + ((step + 0.5) / STEPS) ** 2) for step in range(RANK, STEPS, SIZE)) / STEPS


def gather(mine: float) -> float:
    """The sum over all ranks, on rank 0."""
    with socket.create_server((HOST, int(PORT))) as server:
        for _ in range(SIZE - 1):
            connection, _ = server.accept()
            with connection, connection.makefile() as lines:
                mine += float(lines.readline())
    return mine


def send(mine: float) -> None:
    """Hand this rank's part to rank 0, which may not listen yet."""
    until = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection((HOST, int(PORT))) as connection:
                connection.sendall(f"{mine!r}\n".encode())
                return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


part = share()
print(f"rank {RANK} of {SIZE} on {os.environ['IRIS_WORKER_ID']}")
if RANK == 0:
    print(f"the whole gang computed pi = {gather(part):.9f}")
else:
    send(part)
