"""``python -m benchmarks.readers URL --count 8``: clients that list jobs page by page until stdin
ends.

A separate process, so that the clients do not use the measuring process's processor; it prints the
number of pages at the end. Listings differ between clients and between pages, as those of different
users do.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys

from benchmarks.http import Submitter


async def _read(url: str, number: int, pages: list[int]) -> None:
    async with Submitter(url) as connection:
        for turn in itertools.count():
            await connection.get(f"/v1/jobs?limit=100&name_prefix=/job-{(number + turn) % 10}")
            pages[0] += 1


async def _main(url: str, count: int) -> None:
    pages = [0]
    reading = [asyncio.create_task(_read(url, number, pages)) for number in range(count)]
    print("ready", flush=True)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([ended, *reading], return_when=asyncio.FIRST_COMPLETED)
    for task in reading:
        if task.done():
            task.result()
        task.cancel()
    print(pages[0], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=8)
    options = parser.parse_args()
    asyncio.run(_main(options.url, options.count))
