"""Checks the results of jobs against the event stream and against what the tasks wrote.

Each function returns one sentence for each violation; the first word is its kind: lost, doubled,
wrong, stuck.
Source: docs/design/reliability.md#promises, P1, P2, P5 to P8.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from iris.client.problems import ClientError, TryAgain, Unreachable
from iris_bus.connection.connection import Credentials
from iris_bus.jetstream import connect
from iris_core import codec, subjects
from iris_core.errors import InvariantBroken
from iris_core.views.events import DeploymentEvent, RouteEvent, TaskEvent
from iris_core.views.streams import LogLineView
from iris_state.records.ledger import Ledger
from tests.chaos.load import CHILD, PRINTED, Nomination
from tests.chaos.serving import RolloutEvent, Rollouts
from tests.support.cluster import Cluster
from tests.support.records import ledger_of

_SETTLE_S = 180.0
_OF_ROLLOUT: dict[str, type[RolloutEvent]] = {"deployment": DeploymentEvent, "route": RouteEvent}
_ENDED = {"succeeded", "failed", "killed", "worker_failed", "unschedulable", "preempted"}

Told = dict[str, list[TaskEvent]]
"""Every task's events, in the order they were told."""


def ends(cluster: Cluster, nominations: list[Nomination]) -> list[str]:
    """Wait for every promised job; each is there and has ended as it must."""
    deadline = time.monotonic() + _SETTLE_S
    return [
        sentence for nomination in nominations if (sentence := _end(cluster, nomination, deadline))
    ]


def _end(cluster: Cluster, nomination: Nomination, deadline: float) -> str:
    while True:
        try:
            job = cluster.client.job(nomination.id).view
        except ClientError as error:
            if time.monotonic() > deadline:
                return f"lost: {nomination.name}: {error}"
            time.sleep(0.2)
            continue
        if job.state in _ENDED:
            right = job.state in nomination.ends
            return (
                ""
                if right
                else f"wrong: {nomination.name} has {job.state}, not {sorted(nomination.ends)}: {job.error}"
            )
        if time.monotonic() > deadline:
            return f"stuck: {nomination.name} is {job.state}"
        time.sleep(0.1)


async def records(nats_url: str, credentials: Credentials) -> tuple[Ledger, list[str]]:
    """The ledger of the journal, replayed, and every invariant that it breaks."""
    try:
        return await ledger_of(nats_url, credentials), []
    except InvariantBroken as broken:
        return Ledger(), [f"wrong: {line}" for line in str(broken).splitlines()]


async def told(nats_url: str, credentials: Credentials) -> tuple[Told, Rollouts, list[str]]:
    """Every event once, in order, and each task a chain of states that ends in one that is an end.

    A parent that runs a second time may ask for its child again, which is another job once the
    first has ended.
    """
    tasks: Told = defaultdict(list)
    rollouts: Rollouts = defaultdict(list)
    ids = await _read(nats_url, credentials, tasks, rollouts)
    wrong = (
        []
        if ids == sorted(set(ids))
        else [f"doubled: {len(ids)} events, {len(set(ids))} different, or shuffled"]
    )
    for name, events in tasks.items():
        before = None
        for event in events:
            anew = event.previous is None and before in _ENDED and CHILD in name
            if event.previous != before and not anew:
                wrong.append(
                    f"lost: an event, or shuffled: {name} went from {event.previous}, it was {before}"
                )
            before = event.state
        if before not in _ENDED:
            wrong.append(f"stuck: {name} has been {before} to the last event")
    return tasks, rollouts, wrong


async def _read(
    nats_url: str, credentials: Credentials, tasks: Told, rollouts: Rollouts
) -> list[tuple[int, ...]]:
    connection = await connect(nats_url, name="chaos", credentials=credentials)
    reader = connection.streams.read(subjects.EVENTS.name, 0)
    last = await connection.streams.last(subjects.EVENTS.name)
    ids: list[tuple[int, ...]] = []
    while last is not None and (not ids or ids[-1] < _place(last.headers["Nats-Msg-Id"])):
        for message in await reader.batch(wait=5):
            ids.append(_place(message.headers["Nats-Msg-Id"]))
            if message.subject.startswith("task.state."):
                event = codec.from_json(message.data, TaskEvent)
                tasks[event.task].append(event)
            elif kind := _OF_ROLLOUT.get(message.subject.partition(".")[0]):
                found = codec.from_json(message.data, kind)
                rollouts[found.deployment].append(found)
    await reader.close()
    await connection.close()
    return ids


def outputs(cluster: Cluster, runs: Runs) -> tuple[int, list[str]]:
    """Every line of every run to its end that ended normally, once and in order; how many were
    looked at.
    """
    checked, wrong = 0, []
    deadline = time.monotonic() + _SETTLE_S
    for task in sorted({task for task, _ in runs.ended}):
        said: dict[int, list[str]] = defaultdict(list)
        try:
            lines_of_task = _lines(cluster, task, deadline)
        except ClientError as error:
            wrong.append(f"stuck: the output of {task} cannot be read: {error}")
            continue
        for line in lines_of_task:
            if line.line.startswith("line "):
                said[line.attempt].append(line.line)
        for attempt in cluster.client.task(task).attempts:
            if attempt.exit_code is None or (task, attempt.number) not in runs.ended:
                continue
            lines = said[attempt.number]
            checked += len(PRINTED)
            if lines != PRINTED:
                there = len(set(lines) & set(PRINTED))
                what = (
                    f"{len(PRINTED) - there} lines"
                    if there < len(PRINTED)
                    else "the order of lines"
                )
                word = "lost" if len(lines) <= len(PRINTED) else "doubled"
                wrong.append(
                    f"{word}: {what} of attempt {attempt.number} of {task}, which has {len(lines)}"
                )
    return checked, wrong


def _lines(cluster: Cluster, task: str, deadline: float) -> list[LogLineView]:
    """What a task has printed; asked for again while the log stream has no leader. Raises
    ClientError.
    """
    while True:
        try:
            return list(
                cluster.client.logs(task, {"attempt": "all", "stream": "stdout"}, follow=False)
            )
        except (TryAgain, Unreachable):
            if time.monotonic() > deadline:
                raise
        time.sleep(1.0)


def unstarted(cluster: Cluster, tasks: Told) -> list[str]:
    """No host has failed to start anything: to whatever was there before, its directories are for
    the next.
    """
    suspects = {e.task for events in tasks.values() for e in events if e.cause == "infrastructure"}
    attempts = [
        (task, attempt)
        for task in sorted(suspects)
        for attempt in cluster.client.task(task).attempts
    ]
    return [
        f"wrong: attempt {attempt.number} of {task} on {attempt.worker}: {attempt.error}"
        for task, attempt in attempts
        if attempt.error and "could not be started" in attempt.error
    ]


def _place(message_id: str) -> tuple[int, ...]:
    return tuple(map(int, message_id.split(".")))


def trail(tasks: Told, sentence: str) -> list[str]:
    """What was told of the tasks a sentence names, to find out how it came to that."""
    named = [word.rstrip(":,") for word in sentence.split() if word.startswith("/")]
    return [
        f"    {name} attempt {e.attempt} {e.state} {e.cause or ''} exit {e.exit_code} on {e.worker} at {e.at_ms}"
        for name, events in sorted(tasks.items())
        if name in named or name.rpartition("/")[0] in named
        for e in events
    ]


Run = tuple[str, int]
"""A task's name and an attempt's number."""


class Runs:
    """What the tasks wrote when they began and when they ended, and whether P2 allows it.

    Attributes:
        begun: how often each attempt began. ended: attempts that came to their end.
        again: attempts of a task behind its first that began.
        overlaps: attempts that began while an earlier one of the task still ran, which a LOST
            worker excuses.
    """

    def __init__(self, path: Path, tasks: Told) -> None:
        self._places: dict[str, list[Run]] = defaultdict(list)
        self._causes = {(e.task, e.attempt, e.cause) for events in tasks.values() for e in events}
        self._at: dict[str, dict[Run, float]] = {"begins": {}, "ends": {}}
        self.begun: Counter[Run] = Counter()
        for line in path.read_text().splitlines():
            task, attempt, what, at, place = line.split()
            self._at[what][task, int(attempt)] = float(at)
            self.begun[task, int(attempt)] += what == "begins"
            if what == "begins":
                self._places[place].append((task, int(attempt)))
        self.ended = set(self._at["ends"])
        self.again = sum(n - 1 for n in Counter(task for task, _ in self.begun).values())
        self.overlaps = [run for run in self.begun if self._overlaps(run)]

    def wrong(self, given_up: Callable[[Run], bool]) -> list[str]:
        """``given_up`` says whether an attempt's end was never reported and its host became
        LOST.
        """
        twice = [
            f"doubled: attempt {a} of {task} ran {n} times"
            for (task, a), n in self.begun.items()
            if n > 1
        ]
        others = [run for run in self.overlaps if (*run, "worker_lost") not in self._causes]
        unexcused = [
            run for run in others if not given_up(run)
        ]  # it had been told to stop, and then its host was lost
        return [
            *twice,
            *(f"doubled: {task} ran again beside attempt {a}, not LOST" for task, a in unexcused),
        ]

    def adopted(self, killed: list[tuple[str, float]]) -> list[int]:
        """Of each run to its end that outlived its worker, how many came after it in its directory.

        ``killed``: the workers that were killed, and when.
        """
        found = []
        for place, runs in self._places.items():
            times = [at for worker, at in killed if f"/{worker}/" in place]
            runs.sort(key=self._at["begins"].__getitem__)
            for number, run in enumerate(runs, 1):
                began, ended = self._at["begins"][run], self._at["ends"].get(run, 0.0)
                if any(began < at < ended for at in times):
                    found.append(len(runs) - number)
        return found

    def _overlaps(self, run: Run) -> bool:
        """Whether a later attempt began before this one ended."""
        ended = self._at["ends"].get(run)
        later = [
            at for (task, a), at in self._at["begins"].items() if task == run[0] and a > run[1]
        ]
        return ended is not None and any(at < ended for at in later)
