"""Reads path segments and query parameters strictly; each mistake names its parameter.

Out of scope: bodies. Source: docs/design/interfaces.md#http.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from iris_core.errors import Mistake, Refused
from iris_core.names import JobName
from iris_gateway.http.problem import ProblemResponse, invalid

MAX_LIMIT = 500
DEFAULT_LIMIT = 100
MAX_CURSOR = 1024

_JOB_ID = re.compile(r"j[1-9][0-9]{0,17}\Z")
_TASK_ID = re.compile(r"j[1-9][0-9]{0,17}/(?:0|[1-9][0-9]{0,4})\Z")
_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,256}\Z")
_CURSOR = re.compile(r"[A-Za-z0-9_=-]+\Z")
_PERIOD = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h|d)\Z")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TRUTH = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}

T = TypeVar("T")


def segment(raw: str) -> str:
    """A path segment, percent-decoded once. Raises ProblemResponse not_found when it is not UTF-8."""
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise ProblemResponse("not_found", "this path is not UTF-8") from None


def job_reference(text: str) -> str:
    """A job's id ``j<number>`` or its name;

    one without its leading slash is a root job's. Raises ProblemResponse not_found.
    """
    if _JOB_ID.match(text):
        return text
    try:
        return str(JobName.job(text if text.startswith("/") else f"/{text}"))
    except Refused as no:
        raise ProblemResponse("not_found", f"no such job: {no.detail}") from None


def task_reference(text: str) -> str:
    """A task's name, as of `job_reference`, or ``j<number>/<index>``. Raises ProblemResponse not_found."""
    if _TASK_ID.match(text):
        return text
    try:
        name = JobName.from_string(text if text.startswith("/") else f"/{text}")
    except Refused as no:
        raise ProblemResponse("not_found", f"no such task: {no.detail}") from None
    if not name.is_task:
        raise ProblemResponse("not_found", f"no such task: {text[:80]!r} is the name of a job")
    return str(name)


def identifier(text: str, what: str) -> str:
    """A worker's, session's or user's id. Raises ProblemResponse not_found."""
    if not _WORD.match(text):
        raise ProblemResponse("not_found", f"no such {what}: {text[:80]!r}")
    return text


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter as the documentation shows it; ``schema`` is JSON Schema."""

    name: str
    description: str
    schema: Mapping[str, object]


class Parameters:
    """The query of one request. Reads collect mistakes; `finish` refuses them all at once, including unknown
    parameters.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._given: dict[str, list[str]] = {}
        for name, value in pairs:
            self._given.setdefault(name, []).append(value)
        self._read: set[str] = set()
        self._mistakes: list[Mistake] = []

    def finish(self) -> None:
        """Raises ProblemResponse invalid when a parameter was wrong, or was given and not read."""
        for name in self._given.keys() - self._read:
            self.wrong(name, "unknown_parameter", "is not a parameter here", "one of: " + ", ".join(sorted(self._read)))
        if self._mistakes:
            raise invalid(self._mistakes)

    def wrong(self, name: str, code: str, message: str, hint: str = "") -> None:
        """Record a mistake about one parameter."""
        self._mistakes.append(Mistake(pointer=f"?{name}", code=code, message=message, hint=hint))

    def allow(self, name: str) -> None:
        """Allow a parameter without reading it."""
        self._read.add(name)

    def text(self, name: str, default: str = "", *, allow: Callable[[str], bool] = bool, hint: str = "") -> str:
        """A parameter with at most one value that is allowed."""
        self._read.add(name)
        values = self._given.get(name, [])
        if not values:
            return default
        if len(values) > 1:
            self.wrong(name, "repeated", "is given more than once")
        elif not allow(values[0]):
            self.wrong(name, "wrong_value", f"cannot be {values[0][:80]!r}", hint)
        else:
            return values[0]
        return default

    def choice(self, name: str, choices: Iterable[str], default: str = "") -> str:
        """One of several words."""
        words = tuple(choices)
        return self.text(name, default, allow=words.__contains__, hint="one of: " + ", ".join(words))

    def words(self, name: str, choices: Iterable[str]) -> list[str]:
        """Any number of several words, separated by commas or repeated."""
        self._read.add(name)
        known = tuple(choices)
        given = [word for value in self._given.get(name, []) for word in value.split(",")]
        for word in given:
            if word not in known:
                self.wrong(name, "wrong_value", f"cannot be {word[:80]!r}", "one of: " + ", ".join(known))
        return [word for word in given if word in known]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        text = self.text(name, str(default), allow=lambda t: t.isascii() and t.isdigit() and len(t) <= 18)
        value = int(text)
        if least <= value <= most:
            return value
        self.wrong(name, "out_of_range", f"must be {least} to {most}, not {value}")
        return default

    def limit(self) -> int:
        """``limit``: the number of items of a page."""
        return self.number("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)

    def cursor(self) -> str:
        """``cursor``: where a page begins, from the previous page."""
        return self.text("cursor", allow=lambda t: len(t) <= MAX_CURSOR and _CURSOR.match(t) is not None)

    def truth(self, name: str) -> bool:
        """A switch: ``?follow`` and ``?follow=true`` are on."""
        words = self.text(name, "false", allow=_TRUTH.__contains__, hint="true or false")
        return _TRUTH[words]

    def since_ms(self, name: str, now_ms: int) -> int:
        """A time: RFC 3339, or a duration before now such as ``10m``; 0 when absent."""
        text = self.text(name)
        if not text:
            return 0
        if period := _PERIOD.match(text):
            return now_ms - int(period["count"]) * _UNITS_MS[period["unit"]]
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.wrong(name, "wrong_value", f"cannot be {text[:80]!r}", "a time such as 2026-01-31T08:00:00Z, or 10m")
            return 0
        return int(moment.timestamp() * 1000)
