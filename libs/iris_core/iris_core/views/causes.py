"""Groups failed tasks by why they failed, for pages, the command line and the exceptions of the
SDK.

Pure. Out of scope: reading tasks (`iris.client.causes`, `iris_gateway.dashboard.page_data`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

LOOKED_AT = 200
"""Failed tasks of a job that are looked at."""
SHOWN = 5
"""The largest groups that are shown, and indexes of a group."""
LAST_LINES = 10

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")


class FailureGroup(msgspec.Struct):
    """Tasks of a job that failed in the same way.

    Attributes:
        line: the last line that the first of them printed to stderr, else why it ended.
        task: the id of the first. indexes: of all.
        last_lines: the end of the first one's stderr.
    """

    job: str
    line: str
    task: str
    indexes: list[int]
    last_lines: list[str]

    @property
    def count(self) -> int:
        return len(self.indexes)

    def __str__(self) -> str:
        """``6 x RuntimeError: loss is nan (tasks 5, 42, 43, 44, 50, ...)``."""
        some = ", ".join(map(str, self.indexes[:SHOWN])) + (", ..." if self.count > SHOWN else "")
        return f"{self.count} x {self.line} (task{'s' if self.count > 1 else ''} {some})"


def failure_groups(tasks: Iterable[Mapping[str, Any]]) -> list[FailureGroup]:
    """Failed tasks, as the API shows them, by their last line, numbers aside, and those that
    printed none by how they ended; the `SHOWN` largest groups first.
    """
    groups: dict[tuple[object, ...], FailureGroup] = {}
    for one in tasks:
        line = last_line(one)
        last = _last(one)
        new = FailureGroup(one["job"], line, one["id"], [], last_lines=_stderr(one)[-LAST_LINES:])
        ended = () if last_printed(one) else (one.get("exit_code"), last.get("signal"))
        groups.setdefault((_NUMBER.sub("#", line), *ended), new).indexes.append(one["index"])
    return sorted(groups.values(), key=lambda group: -group.count)[:SHOWN]


def last_line(task: Mapping[str, Any]) -> str:
    """The last line that a task's last attempt printed to stderr, else why it ended."""
    return last_printed(task) or str(
        _last(task).get("error") or task["error"] or f"exit code {task['exit_code']}"
    )


def last_printed(task: Mapping[str, Any]) -> str:
    """The last line that a task's last attempt printed to stderr; empty when there is none."""
    return end_of(_last(task).get("stderr_tail"))


def end_of(tail: str | None) -> str:
    """The last line of the end of an output; empty when there is none."""
    return "".join((tail or "").rstrip().splitlines()[-1:]).strip()


def _stderr(task: Mapping[str, Any]) -> list[str]:
    return str(_last(task).get("stderr_tail") or "").rstrip().splitlines()


def _last(task: Mapping[str, Any]) -> Mapping[str, Any]:
    attempts = task["attempts"]
    return attempts[-1] if attempts else {}
