"""Maps in the load: of lists, of iterators, and by an executor. Each call returns what it must, once.

A call writes and prints what every other task of the load does (`load`), so its runs and its output are judged with
theirs. Its result is lost when its future raises. What strikes the processes that calls are cloned from is here too.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import iris
from iris import Client
from iris.client.problems import ClientError, Conflict
from tests.chaos.load import PRINTED
from tests.chaos.places import Place

_AT_A_TIME = 3
_SETTLE_S = 180.0
_LAUNCHER = "iris_worker.launcher.launcher"
_LONGEST_ITEM_S = 0.2


def squares(runs: str) -> Callable[[int], int]:
    """The function of the calls; local, so that it travels by value."""
    half = len(PRINTED) // 2
    parts = ["\n".join(PRINTED[:half]) + "\n", "\n".join(PRINTED[half:]) + "\n"]

    def square(number: int) -> int:
        import os
        import sys
        import time

        def note(what: str) -> None:
            line = f"{os.environ['IRIS_TASK']} {os.environ['IRIS_ATTEMPT']} {what} {time.time():.9f} {os.getcwd()}\n"
            with open(runs, "a") as file:
                file.write(line)

        note("begins")
        sys.stdout.write(parts[0])
        sys.stdout.flush()
        time.sleep(number % 5 * 0.2)
        sys.stdout.write(parts[1])
        sys.stdout.flush()
        note("ends")
        return number * number

    return square


@dataclass
class Maps:
    """Calls until it is told to stop.

    Attributes:
        calls: the name of each map, with its numbers and their futures. refused: submissions that had no answer.
    """

    client: Client
    runs: Path
    rng: random.Random
    calls: dict[str, list[tuple[int, Future[int]]]] = field(default_factory=dict)
    refused: int = 0
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.enough.is_set():
            live = [name for name, made in self.calls.items() if not all(future.done() for _, future in made)]
            if len(live) < _AT_A_TIME:
                number += 1
                self._call(self.rng.choice(("list", "items", "executor")), f"/map-{number}")
            self.enough.wait(0.3)

    def _call(self, kind: str, name: str) -> None:
        numbers = [self.rng.randrange(1000) for _ in range(self.rng.randint(2, 8))]
        options: dict[str, Any] = {"name": name, "cpu": 0.25, "max_retries_preemption": 100, "env": _path()}
        options["reuse"] = self.rng.choice((1, 5))
        try:
            if kind == "executor":
                with_executor(self.calls.setdefault(name, []), self.client, squares(str(self.runs)), numbers, options)
                return
            items = numbers if kind == "list" else slowly(numbers)
            mapped = self.client.map(squares(str(self.runs)), items, **options)
        except Conflict:  # the answer to its submission was lost with the gateway
            mapped = self.client.map_of(name)
        except ClientError:
            self.refused += 1
            return
        self.calls[name] = [(number, future) for number, future in zip(numbers, mapped, strict=True)]

    def ends(self) -> list[str]:
        """One sentence for each call that did not return its square."""
        until_s = time.monotonic() + _SETTLE_S
        wrong: list[str] = []
        for name, made in self.calls.items():
            wait([future for _, future in made], max(0.0, until_s - time.monotonic()))
            for index, (number, future) in enumerate(made):
                if not future.done():
                    wrong.append(f"stuck: call {index} of {name} has not ended")
                elif (error := future.exception()) is not None:
                    wrong.append(f"lost: the result of call {index} of {name}: {type(error).__name__}: {error}")
                elif future.result() != number * number:
                    wrong.append(f"wrong: call {index} of {name} returned {future.result()}, not {number}²")
        return wrong


def with_executor(
    made: list[tuple[int, Future[int]]],
    client: Client,
    function: Callable[[int], int],
    numbers: list[int],
    options: dict[str, Any],
) -> None:
    """Submit calls one after the other, as a search does."""
    executor = iris.Executor(client, **options)
    for number in slowly(numbers):
        made.append((number, executor.submit(function, number)))
    executor.shutdown(wait=False)


def slowly(numbers: list[int]) -> Iterator[int]:
    """The numbers, as something that takes time yields them."""
    for number in numbers:
        time.sleep(number % 3 * _LONGEST_ITEM_S / 2)
        yield number


def _path() -> dict[str, str]:
    return {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}


# ── what calls are cloned from ──────────────────────────────────────────────────────────────────────────────────────


def launcher_of(place: Place) -> int:
    """Raises LookupError without one."""
    return next(iter(pid for pid, words, _ in _processes(place) if words[3:4] == [_LAUNCHER]), 0) or _missing(place)


def template_of(place: Place) -> int:
    """The process that a map's calls are cloned from: the oldest of those that look alike. Raises LookupError."""
    alike: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
    for pid, words, process in _processes(place):
        if words[1:4] == ["-I", "-S", "-c"]:
            with contextlib.suppress(psutil.Error):
                alike[process.ppid(), words[-1]].append((process.create_time(), pid))
    return min(min(each)[1] for each in alike.values()) if alike else _missing(place)


def _processes(place: Place) -> Iterator[tuple[int, list[str], psutil.Process]]:
    for pid in place.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            yield pid, process.cmdline(), process


def _missing(place: Place) -> int:
    raise LookupError(place.name)
