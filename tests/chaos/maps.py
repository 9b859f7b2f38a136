"""Maps in the load: of lists and iterators, by an executor, in chunks, with a call that is
cancelled, followed by another client, and in a call. Each call returns what it must, once.

A call writes and prints what every other task of the load does (`load`), so its runs and its output
are judged with theirs. Its result is lost when its future raises. What strikes the processes that
calls are cloned from is here too.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import Counter, defaultdict
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
KINDS = ("list", "items", "executor", "chunks", "cancelled", "resumed", "nested")


WHOLE, FIRST, MIDDLE, LAST = "whole", "first", "middle", "last"
"""Where a call is in its task: the first begins it, the last ends it."""


def squares(runs: str) -> Callable[..., int]:
    """The function of the calls; local, so that it travels by value."""
    half = len(PRINTED) // 2
    parts = ["\n".join(PRINTED[:half]) + "\n", "\n".join(PRINTED[half:]) + "\n"]

    def square(number: int, place: str = "whole", inner: bool = False) -> int:
        import os
        import sys
        import time

        def note(what: str, part: str) -> None:
            line = f"{os.environ['IRIS_TASK']} {os.environ['IRIS_ATTEMPT']} {what} {time.time():.9f} {os.getcwd()}\n"
            if what == "begins":
                with open(runs, "a") as file:
                    file.write(line)
            sys.stdout.write(part)
            sys.stdout.flush()
            if what == "ends":
                with open(runs, "a") as file:
                    file.write(line)

        if place in ("whole", "first"):
            note("begins", parts[0])
        if inner:
            import iris

            with iris.Client() as client:
                [found] = client.map(
                    lambda x: x * x, [number], cpu=0.25, max_retries_preemption=100
                ).results()
        else:
            time.sleep(number % 5 * 0.2)
            found = number * number
        if place in ("whole", "last"):
            note("ends", parts[1])
        return found

    return square


@dataclass
class Call:
    """A call: its argument, its future, and whether it was to be cancelled."""

    number: int
    future: Future[int]
    is_struck: bool = False


@dataclass
class Maps:
    """Calls until it is told to stop.

    Attributes:
        calls: the name of each map, with its calls. kinds: how many maps of each. refused:
            submissions that had no answer.
    """

    client: Client
    runs: Path
    rng: random.Random
    calls: dict[str, list[Call]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.enough.is_set():
            live = [
                name
                for name, made in self.calls.items()
                if not all(call.future.done() for call in made)
            ]
            if len(live) < _AT_A_TIME:
                number += 1
                self._call(KINDS[number % len(KINDS)], f"/map-{number}")
            self.enough.wait(0.3)

    def _call(self, kind: str, name: str) -> None:
        numbers = [self.rng.randrange(1000) for _ in range(self.rng.randint(2, 8))]
        options: dict[str, Any] = {
            "name": name,
            "cpu": 0.25,
            "max_retries_preemption": 100,
            "env": _path(),
        }
        options["reuse"] = self.rng.choice((1, 5))
        function = squares(str(self.runs))
        self.kinds[f"{kind}{' with reuse' if options['reuse'] > 1 else ''}"] += 1
        try:
            if kind == "executor":
                with_executor(
                    self.calls.setdefault(name, []), self.client, function, numbers, options
                )
                return
            if kind == "nested":
                numbers = numbers[:2]
                options["kwargs"] = {"inner": True}
            if kind == "chunks":
                options["chunksize"] = size = self.rng.randint(2, 4)
                mapped = self.client.starmap(function, chunked(numbers, size), **options)
            else:
                mapped = self.client.map(
                    function, slowly(numbers) if kind == "items" else numbers, **options
                )
        except Conflict:  # the answer to its submission was lost with the gateway
            mapped = self.client.map_of(name)
        except ClientError:
            self.refused += 1
            return
        if kind == "resumed":
            mapped = self.client.map_of(name)
        self.calls[name] = [
            Call(number, future) for number, future in zip(numbers, mapped, strict=True)
        ]
        if kind == "cancelled":
            self._cancel(self.rng.choice(self.calls[name]))

    def _cancel(self, call: Call) -> None:
        """At some moment of its life. It was cancelled, or has returned, also when the answer to
        that was lost.
        """
        call.is_struck = True
        self.enough.wait(self.rng.uniform(0.0, 1.0))
        with contextlib.suppress(ClientError):
            call.future.cancel()

    def ends(self) -> list[str]:
        """One sentence for each call that did not return its square, or whose record says
        otherwise.
        """
        until_s = time.monotonic() + _SETTLE_S
        wrong: list[str] = []
        for name, made in self.calls.items():
            wait([call.future for call in made], max(0.0, until_s - time.monotonic()))
            wrong += [
                f"{said} of {name}"
                for index, call in enumerate(made)
                if (said := _wrong(index, call))
            ]
            wrong += self._records(name, made)
        return wrong

    def _records(self, name: str, made: list[Call]) -> list[str]:
        """One sentence for each task that has not succeeded, unless its only call was to be
        cancelled.
        """
        struck = {f"{name}/{index}" for index, call in enumerate(made) if call.is_struck}
        try:
            states = (
                {task.task: task.state for task in self.client.job(name).tasks()} if made else {}
            )
        except ClientError as error:
            return [f"lost: the record of {name}: {error}"]
        return [
            f"wrong: {task} is {state}"
            for task, state in states.items()
            if state != "succeeded" and not (task in struck and state == "killed")
        ]


def _wrong(index: int, call: Call) -> str:
    """What is wrong with the outcome of a call, with its kind as the first word; empty for
    nothing.
    """
    if not call.future.done():
        return f"stuck: call {index}"
    if call.future.cancelled():
        return (
            ""
            if call.is_struck
            else f"lost: the result of call {index}, which nobody has cancelled,"
        )
    if (error := call.future.exception()) is not None:
        return f"lost: {type(error).__name__}: {error}, the result of call {index}"
    if call.future.result() != call.number**2:
        return f"wrong: {call.future.result()}, not {call.number}², returned by call {index}"
    return ""


def with_executor(
    made: list[Call],
    client: Client,
    function: Callable[..., int],
    numbers: list[int],
    options: dict[str, Any],
) -> None:
    """Submit calls one after the other, as a search does."""
    executor = iris.Executor(client, **options)
    for number in slowly(numbers):
        made.append(Call(number, executor.submit(function, number)))
    executor.shutdown(wait=False)


def chunked(numbers: list[int], size: int) -> list[tuple[int, str]]:
    """Each number, and where it is in its chunk of so many."""
    ends = {0: FIRST, size - 1: LAST}
    found = [(number, ends.get(at % size, MIDDLE)) for at, number in enumerate(numbers)]
    number, place = found.pop()
    return [*found, (number, WHOLE if place == FIRST else LAST)]


def slowly(numbers: list[int]) -> Iterator[int]:
    """The numbers, as something that takes time yields them."""
    for number in numbers:
        time.sleep(number % 3 * _LONGEST_ITEM_S / 2)
        yield number


def _path() -> dict[str, str]:
    return {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}


# ── what calls are cloned from ────────────────────────────────────────────────────────────────────


def launcher_of(place: Place) -> int:
    """Raises LookupError without one."""
    return next(
        iter(pid for pid, words, _ in _processes(place) if words[3:4] == [_LAUNCHER]), 0
    ) or _missing(place)


def template_of(place: Place) -> int:
    """The process that a map's calls are cloned from: the oldest of those that look alike. Raises
    LookupError.
    """
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
