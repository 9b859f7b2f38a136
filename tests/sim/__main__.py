"""``python -m tests.sim --seeds 200`` or ``--seed 1234``: fault schedules on a simulated cluster,
and the findings.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial

from tests.sim.world import Outcome, World, play

_CHUNK = 5
_CHUNKS = 10
"""Seeds at once, and how often before a fresh process takes over: what tracebacks hold on to slows
an old one down.
"""
_TELL_EVERY = 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seed", type=int, help="run this one, and tell what happens in it")
    parser.add_argument("--seeds", type=int, default=200, help="run so many")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--crowds", action="store_true", help="only worlds with a crowd")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed, crowded=options.crowds)
    seeds = range(options.first, options.first + options.seeds)
    return _many(seeds, options.jobs, crowded=options.crowds)


def _one(seed: int, *, crowded: bool) -> int:
    """Play one seed aloud."""
    world = World(seed, crowded=crowded)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Simulated(world))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    outcome = world.run()
    print(_line(outcome))
    return int(bool(outcome.wrong))


class _Simulated(logging.Formatter):
    """Log lines with simulated time, and faults between them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        world.server.struck = lambda fault: print(f"{world.server.now:8.3f}  !! {fault}")

    def format(self, record: logging.LogRecord) -> str:
        return f"{self._world.server.now:8.3f}  {record.name}: {record.getMessage()}"


def _many(seeds: range, jobs: int, *, crowded: bool) -> int:
    began = time.monotonic()
    faults: Counter[str] = Counter()
    wrong = tasks = commits = largest = chained = handed_back = 0
    with multiprocessing.Pool(jobs, maxtasksperchild=_CHUNKS) as pool:
        for count, outcome in enumerate(
            pool.imap(partial(play, crowded=crowded), seeds, chunksize=_CHUNK), 1
        ):
            faults.update(outcome.faults)
            commits += outcome.commits
            tasks += outcome.jobs
            largest = max(largest, outcome.largest)
            chained, handed_back = chained + outcome.chained, handed_back + outcome.handed_back
            if outcome.wrong:
                wrong += 1
                print(_line(outcome), flush=True)
            if count % _TELL_EVERY == 0:
                print(f"{count} of {len(seeds)} seeds, violations: {wrong}", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{len(seeds)} seeds from {seeds.start}, {tasks} requests, {commits} commits checked, {seconds:.0f} s"
    )
    print("faults: " + ", ".join(f"{name} {n}" for name, n in sorted(faults.items())))
    print(f"attempts that waited behind others: {chained}, handed back: {handed_back}")
    print(f"largest message: {largest} bytes")
    print(f"violations: {wrong}")
    return int(bool(wrong))


def _line(outcome: Outcome) -> str:
    verdict = f"WRONG {outcome.wrong}" if outcome.wrong else f"right, digest {outcome.digest[:12]}"
    return f"SEED={outcome.seed}: {outcome.seconds:.0f} simulated s, {outcome.commits} commits: {verdict}"


if __name__ == "__main__":
    sys.exit(main())
