"""``python -m benchmarks.floor.interpreted COUNT``: what services do around a start, without any of
Iris.

Each of COUNT rounds is CALLBACKS callbacks of an event loop; each makes a small message, encodes
it, sends it over a socket, reads it and keeps it by its key. It prints the rounds a second, and the
CPU seconds of all.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time

import msgspec

CALLBACKS = 200
"""Chosen so that a round takes about as much CPU as the Python of the services does for one
start.
"""


class Message(msgspec.Struct, array_like=True):
    """Of the size of a worker's report about one attempt."""

    worker: str
    job: int
    index: int
    status: str
    detail: dict[str, str]


async def main(count: int) -> None:
    """Run the rounds one after another."""
    loop, kept = asyncio.get_running_loop(), dict[tuple[int, int], Message]()
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Message)
    sender, receiver = socket.socketpair()

    def step(number: int, index: int, done: asyncio.Future[None]) -> None:
        sender.send(
            encoder.encode(
                Message(f"host-{number % 8}", number, index, "running", {"pod": "pod-0"})
            )
        )
        message = decoder.decode(receiver.recv(4096))
        kept[message.job, message.index] = message
        if index + 1 < CALLBACKS:
            loop.call_soon(step, number, index + 1, done)
        else:
            done.set_result(None)

    for number in range(count):
        done = loop.create_future()
        loop.call_soon(step, number, 0, done)
        await done
        kept.clear()


if __name__ == "__main__":
    rounds, began_s, began_cpu_s = int(sys.argv[1]), time.perf_counter(), time.process_time()
    asyncio.run(main(rounds))
    print(rounds / (time.perf_counter() - began_s), time.process_time() - began_cpu_s)
