"""Validates the specification of a project, in the gateway and again in the state service.

As `admission.jobs`: all mistakes at once, each with the JSON pointer of its field. Out of scope: what
follows from the other projects (`iris_state.commands.projects`). Source:
docs/design/team.md#projects.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from iris_core.errors import Mistake, Refused, pointer_to
from iris_core.limits import MISTAKES
from iris_core.spec import field_rules
from iris_core.spec.projects import NOT_OF_ROOT, ROOT, ProjectSpec, normal

_LISTS = ("members", "admins", "default_for")
_NOTHING_SET = ProjectSpec()


def validate_project(path: str, spec: ProjectSpec) -> list[Mistake]:
    """The mistakes in a project's path and specification, at most `MISTAKES`."""
    return list(islice(_mistakes(path, spec), MISTAKES))


def _mistakes(path: str, spec: ProjectSpec) -> Iterator[Mistake]:
    try:
        place = normal(path)
    except Refused as refused:
        yield Mistake(pointer="", code="bad_project", message=refused.detail)
        return
    yield from field_rules.mistakes(spec)
    for field in NOT_OF_ROOT if place == ROOT else ():
        if getattr(spec, field) != getattr(_NOTHING_SET, field):
            yield Mistake(
                pointer=f"/{field}",
                code="unexpected",
                message=f"{ROOT} is everybody's and has no {field.replace('_', ' ')}",
                hint=f"leave {field} out",
            )
    for field in _LISTS:
        names = getattr(spec, field)
        seen: set[str] = set()
        for number, name in enumerate(names):
            if name in seen:
                yield Mistake(
                    pointer=pointer_to(field, number),
                    code="duplicate",
                    message=f"{name[:80]!r} appears twice",
                )
            seen.add(name)
