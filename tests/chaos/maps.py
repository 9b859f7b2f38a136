"""Maps in the load: of lists and iterators, by an executor, in chunks, with a call that is
cancelled, followed by another client, and in a call; of calls whose results are so large that they
are stored apart, that raise, and that raise at first. Each returns what it must, once, also to who
asks for the map by its name when all is over.

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
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

import iris
from iris import Client
from iris.client.problems import ClientError, Conflict, JobKilled
from tests.chaos.load import PRINTED
from tests.chaos.places import Place

_AT_A_TIME = 3
_SETTLE_S = 180.0
_LAUNCHER = "iris_worker.launcher.launcher"
_LONGEST_ITEM_S = 0.2
KINDS = (
    *("list", "large", "items", "executor", "raising", "chunks", "cancelled", "large again"),
    *("resumed", "nested", "large items"),
)
_LARGE_BYTES = (70_000, 300_000)
"""More than the 64 KiB up to which a result is not stored apart."""
_AGAIN = 20
"""So often a task may fail that fails once."""


@dataclass(frozen=True)
class Case:
    """What a call is to do, and so what must come of it.

    Attributes:
        number: its argument. size: of what it returns, in bytes; 0: it returns the square. place:
            where it is in its task. inner: its square is made by a map of its own. raises: it does
            so whenever it runs. again: it does so when it runs for the first time.
    """

    number: int
    size: int = 0
    place: str = "whole"
    inner: bool = False
    raises: bool = False
    again: bool = False

    @property
    def value(self) -> int | bytes:
        """What it returns."""
        if self.size:
            return random.Random(self.number).randbytes(self.size)
        return self.number**2


WHOLE, FIRST, MIDDLE, LAST = "whole", "first", "middle", "last"
"""Where a call is in its task: the first begins it, the last ends it."""


def calls(runs: str) -> Callable[[dict[str, Any]], int | bytes]:
    """The function of the calls; local, so that it travels by value."""
    half = len(PRINTED) // 2
    parts = ["\n".join(PRINTED[:half]) + "\n", "\n".join(PRINTED[half:]) + "\n"]

    def call(case: dict[str, Any]) -> int | bytes:
        import os
        import random
        import sys
        import time

        number, place = case["number"], case["place"]
        mark = f"{runs}.{os.environ['IRIS_TASK'].replace('/', '_')}"
        if case["again"] and not os.path.exists(mark):
            open(mark, "w").close()
            raise OSError("it is the first time")

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
        found: int | bytes
        if case["inner"]:
            import iris

            with iris.Client() as client:
                [found] = client.map(
                    lambda x: x * x, [number], cpu=0.25, max_retries_preemption=100
                ).results()
        else:
            time.sleep(number % 5 * 0.2)
            found = number * number
        if case["size"]:
            found = random.Random(number).randbytes(case["size"])
        if place in ("whole", "last"):
            note("ends", parts[1])
        if case["raises"]:
            raise ValueError(number)
        return found

    return call


@dataclass
class Call:
    """A call: what it does, its future, and whether it was to be cancelled."""

    case: Case
    future: Future[Any]
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
        cases = self._cases(kind)
        options: dict[str, Any] = {
            "name": name,
            "cpu": 0.25,
            "max_retries_preemption": 100,
            "env": _path(),
        }
        options["reuse"] = self.rng.choice((1, 5))
        if kind == "large again":
            options["max_retries_failure"] = _AGAIN
        function = calls(str(self.runs))
        self.kinds[f"{kind}{' with reuse' if options['reuse'] > 1 else ''}"] += 1
        try:
            if kind == "executor":
                with_executor(
                    self.calls.setdefault(name, []), self.client, function, cases, options
                )
                return
            if kind == "chunks":
                options["chunksize"] = size = self.rng.randint(2, 4)
                cases = chunked(cases, size)
            one_by_one = kind in ("items", "large items")
            given = map(asdict, slowly(cases)) if one_by_one else list(map(asdict, cases))
            mapped = self.client.map(function, given, **options)
        except Conflict:  # the answer to its submission was lost with the gateway
            mapped = self.client.map_of(name)
        except ClientError:
            self.refused += 1
            return
        if kind == "resumed":
            mapped = self.client.map_of(name)
        self.calls[name] = [Call(case, future) for case, future in zip(cases, mapped, strict=True)]
        if kind == "cancelled":
            self._cancel(self.rng.choice(self.calls[name]))

    def _cases(self, kind: str) -> list[Case]:
        numbers = [self.rng.randrange(1000) for _ in range(self.rng.randint(2, 8))]
        if kind == "nested":
            return [Case(number, inner=True) for number in numbers[:2]]
        if kind == "raising":
            return [Case(number, raises=bool(at % 2)) for at, number in enumerate(numbers)]
        if kind.startswith("large"):
            again = kind == "large again"
            sizes = [self.rng.randint(*_LARGE_BYTES) for _ in numbers]
            return [
                Case(number, size=size, again=again)
                for number, size in zip(numbers, sizes, strict=True)
            ]
        return [Case(number) for number in numbers]

    def _cancel(self, call: Call) -> None:
        """At some moment of its life. It was cancelled, or has returned, also when the answer to
        that was lost.
        """
        call.is_struck = True
        self.enough.wait(self.rng.uniform(0.0, 1.0))
        with contextlib.suppress(ClientError):
            call.future.cancel()

    def ends(self) -> list[str]:
        """One sentence for each call that did not return what it must, or whose record says
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
            wrong += self._by_name(name, made, until_s)
        return wrong

    def _by_name(self, name: str, made: list[Call], until_s: float) -> list[str]:
        """One sentence for each call that has another outcome for who asks for the map now."""
        try:
            with warnings.catch_warnings():  # one of an executor is closed by nothing else
                warnings.simplefilter("ignore")
                again = list(self.client.map_of(name)) if made else []
        except ClientError as error:
            return [f"lost: {name} by its name: {error}"]
        wait(again, max(1.0, until_s - time.monotonic()))
        if len(again) != len(made):
            return [f"lost: {name} has {len(again)} calls by its name, {len(made)} were made"]
        found = [
            Call(call.case, future, call.is_struck)
            for call, future in zip(made, again, strict=True)
        ]
        said = [(index, _wrong(index, call)) for index, call in enumerate(found)]
        return [f"{words} of {name}, by its name" for _, words in said if words]

    def _records(self, name: str, made: list[Call]) -> list[str]:
        """One sentence for each task that has not succeeded, unless its only call was to be
        cancelled, or to raise.
        """
        raising = {f"{name}/{index}" for index, call in enumerate(made) if call.case.raises}
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
            if state != ("failed" if task in raising else "succeeded")
            and not (task in struck and state == "killed")
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
    error = call.future.exception()
    if call.is_struck and isinstance(error, JobKilled):  # told to who did not cancel it
        return ""
    if call.case.raises:
        raised = isinstance(error, ValueError) and error.args == (call.case.number,)
        return "" if raised else f"wrong: {error!r}, raised by call {index}"
    if error is not None:
        return f"lost: {type(error).__name__}: {error}, the result of call {index}"
    if call.future.result() != call.case.value:
        return f"wrong: {call.future.result()!r:.80}, for {call.case}, returned by call {index}"
    return ""


def with_executor(
    made: list[Call],
    client: Client,
    function: Callable[[dict[str, Any]], int | bytes],
    cases: list[Case],
    options: dict[str, Any],
) -> None:
    """Submit calls one after the other, as a search does."""
    executor = iris.Executor(client, **options)
    for case in slowly(cases):
        made.append(Call(case, executor.submit(function, asdict(case))))
    executor.shutdown(wait=False)


def chunked(cases: list[Case], size: int) -> list[Case]:
    """Each with its place in its chunk of so many."""
    ends = {0: FIRST, size - 1: LAST}
    found = [replace(case, place=ends.get(at % size, MIDDLE)) for at, case in enumerate(cases)]
    last = found.pop()
    return [*found, replace(last, place=WHOLE if last.place == FIRST else LAST)]


def slowly(cases: list[Case]) -> Iterator[Case]:
    """The cases, as something that takes time yields them."""
    for case in cases:
        time.sleep(case.number % 3 * _LONGEST_ITEM_S / 2)
        yield case


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
