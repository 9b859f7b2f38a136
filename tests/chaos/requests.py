"""Requests to the deployments through the proxy, one after the other, and which results are
allowed.

A route of the deployment answers each request, or the proxy refuses it with a reason, in time. A
request may stay unanswered only while the proxy itself is killed, stopped or frozen. Source:
    docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.chaos.deployments import LONGEST_S

_PAUSE_S = 0.04
_LATE_S = 5.0
"""What a busy machine adds to the longest time that is lawful."""
_REASONS = frozenset(
    {
        *((502, "bad_gateway"), (504, "gateway_timeout")),
        *((503, reason) for reason in ("starting", "no_healthy_route", "draining", "overloaded")),
    }
)
"""With what the proxy may refuse."""
_UNKNOWN = (404, "not_found")
_UNREAD = (503, "no_discovery")
"""Of a proxy that has started again and not read the bus yet, for a deployment that it has not
stored.
"""
ROUTE, REFUSED, NOBODY = "answered by a route", "refused with a reason", "answered by nobody"
BACK_S = 60.0
"""The proxy is back so soon after it was struck last, however long the bus is silent meanwhile."""


class Answer(NamedTuple):
    """What became of a request between two times: who answered, with what status and reason, and
    which route's job.
    """

    began: float
    ended: float
    deployment: str
    by: str
    status: int = 0
    reason: str = ""
    job: str = ""


@dataclass
class Requests:
    """Asks the deployments in turn, until told to stop.

    Args:
        names: the deployments that are there.
    """

    url: str
    names: Callable[[], Sequence[str]]
    answers: list[Answer] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.enough.wait(_PAUSE_S):
            if names := self.names():
                number += 1
                self.answers.append(ask(self.url, names[number % len(names)]))


def ask(url: str, deployment: str) -> Answer:
    """One request on a connection of its own."""
    began = time.monotonic()
    place = urlsplit(url)
    connection = http.client.HTTPConnection(
        place.hostname or "", place.port, timeout=LONGEST_S + _LATE_S
    )
    try:
        connection.request("GET", f"/d/{deployment}/")
        response = connection.getresponse()
        body = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(began, time.monotonic(), deployment, NOBODY, reason=repr(error))
    finally:
        connection.close()
    ended = time.monotonic()
    if response.getheader("Iris-Proxy"):
        return Answer(began, ended, deployment, REFUSED, response.status, body["code"])
    return Answer(began, ended, deployment, ROUTE, response.status, job=body["job"])


def wrong(answers: Iterable[Answer], struck: Iterable[tuple[float, float]]) -> list[str]:
    """Sentences about requests that were not treated as promised.

    Args:
        struck: from when until when something was done to the proxy.
    """
    by_time = sorted(answers)
    struck = sorted(struck)
    away = outages(by_time, struck)
    known: set[str] = set()
    found = [
        f"stuck: the proxy answered nobody for {end - begin:.1f} s"
        for begin, end in away
        if end - begin > BACK_S and not any(begin < again < end for again, _ in struck)
    ]
    for one in by_time:
        excused = any(begin <= one.ended and one.began <= end for begin, end in away)
        if (one.status, one.reason) == _UNREAD:
            excused = any(begin <= one.ended and one.began <= end + BACK_S for begin, end in struck)
        if not excused and (sentence := _wrong(one, known)):
            since = ", ".join(f"{one.began - begin:.2f}" for begin, _ in struck)
            found.append(f"{sentence} (seconds since the proxy was struck: {since or 'never'})")
        if (one.status, one.reason) != _UNKNOWN and one.by != NOBODY:
            known.add(one.deployment)
    return found


def _wrong(one: Answer, known: set[str]) -> str:
    what = f"a request to {one.deployment} that took {one.ended - one.began:.1f} s was {one.by}"
    if one.by == NOBODY:
        return f"lost: {what}: {one.reason}"
    if one.ended - one.began > LONGEST_S + _LATE_S:
        return f"stuck: {what}"
    if one.by == ROUTE:
        right = one.status == 200 and one.job.startswith(f"/{one.deployment}/")
        return "" if right else f"wrong: {what}: {one.status} of {one.job}"
    lawful = (one.status, one.reason) in _REASONS or (
        (one.status, one.reason) == _UNKNOWN and not known & {one.deployment}
    )
    return "" if lawful else f"wrong: {what}: {one.status} {one.reason}"


def outages(
    by_time: Sequence[Answer], struck: Iterable[tuple[float, float]]
) -> list[tuple[float, float]]:
    """From each strike against the proxy to the end of the first answer to a request that began
    after the strike.
    """
    found = []
    for begin, end in struck:
        back = (one.ended for one in by_time if one.began > end and one.by != NOBODY)
        found.append((begin, next(back, max([end, *(one.ended for one in by_time)]))))
    return found


def counted(answers: Iterable[Answer]) -> str:
    """How many were treated how."""
    ways = Counter(f"{one.status} {one.reason}" if one.by == REFUSED else one.by for one in answers)
    return ", ".join(f"{number} {way}" for way, number in ways.most_common())
