"""Names are paths: ``/train``, its child ``/train/eval-1``, that job's task ``/train/eval-1/0``.

Pure string rules: validity, ancestry, depth, and the tokens that are allowed in a bus subject or a
    file name.
Source: docs/design/semantics.md#jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from iris_core.errors import Code, Refused

MAX_LEVELS = 16
MAX_COMPONENT = 63
_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, order=True)
class JobName:
    """The name of a job or of one of its tasks.

    A last component that is all digits names a task of the job before it; so a job's last component
    never is.
    """

    parts: tuple[str, ...]

    @classmethod
    def from_string(cls, text: str) -> JobName:
        """Parse a path with its leading slash. Raises Refused naming the invalid component."""
        if not text.startswith("/"):
            raise Refused(Code.INVALID, f"a name starts with '/': {text[:80]!r}")
        parts = tuple(text[1:].split("/"))
        if len(parts) > MAX_LEVELS + 1:
            raise Refused(
                Code.INVALID, f"a name has at most {MAX_LEVELS} levels, this one has {len(parts)}"
            )
        for part in parts:
            check_component(part)
        name = cls(parts)
        if parts[0].isdigit():
            raise Refused(Code.INVALID, f"a job's name is not all digits: {text[:80]!r}")
        if name.depth > MAX_LEVELS:
            raise Refused(
                Code.INVALID, f"a name has at most {MAX_LEVELS} levels, this one has {name.depth}"
            )
        return name

    @classmethod
    def job(cls, text: str) -> JobName:
        """Like `from_string`, but refuses the name of a task."""
        name = cls.from_string(text)
        if name.is_task:
            raise Refused(Code.INVALID, f"a job's last component is not all digits: {text[:80]!r}")
        return name

    def task(self, index: int) -> JobName:
        """The name of this job's task ``index``."""
        return JobName((*self.parts, str(index)))

    @cached_property
    def is_task(self) -> bool:
        return len(self.parts) > 1 and self.parts[-1].isdigit()

    @property
    def job_parts(self) -> tuple[str, ...]:
        return self.parts[:-1] if self.is_task else self.parts

    @property
    def depth(self) -> int:
        """Levels of the job: a root has 1, a task has its job's (docs/design/semantics.md#jobs)."""
        return len(self.job_parts)

    @property
    def parent(self) -> JobName | None:
        """The job above a job, or the job of a task; None for a root."""
        return JobName(self.parts[:-1]) if len(self.parts) > 1 else None

    @property
    def namespace(self) -> str:
        """The root component."""
        return self.parts[0]

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)


def check_component(part: str) -> None:
    """Refuse a component that is empty, too long, or holds anything but letters, digits and ``. _
    -``.
    """
    if _COMPONENT.match(part):
        return
    if len(part) > MAX_COMPONENT:
        raise Refused(
            Code.INVALID, f"a part of a name has at most {MAX_COMPONENT} characters: {part[:80]!r}"
        )
    raise Refused(
        Code.INVALID,
        f"a part of a name starts with a letter or digit and holds only those and '._-': {part[:80]!r}",
    )


def to_token(name: str) -> str:
    """Escape any text to one subject token: ``[A-Za-z0-9_-]`` stay, every other byte becomes
    ``=XX``.

    Injective, so two names never share a token; also safe as a file name. Empty text becomes ``=``.
    """
    return _UNSAFE.sub(_escaped, name) or "="


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found[0].encode())
