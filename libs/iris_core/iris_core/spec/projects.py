"""The specification of a project: a node of the tree of who may use how much. Types, and the rules of
paths.

A project is named by its path, ``/research/nlp``; the root ``/`` is everybody's. Source:
docs/design/team.md#projects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from iris_core.errors import Code, Refused
from iris_core.names import check_component
from iris_core.spec.field_rules import at_most, between, more_than_0, text
from iris_core.spec.resources import MOST_OF_ALL, ResourceLimits

ROOT = "/"
"""The project of jobs that name none: of every user, and above every other."""
MAX_DEPTH = 8
"""Levels of a tree, without the root."""
MAX_PROJECTS = 1000
MAX_WEIGHT = 1_000_000
MAX_NAMES = 1000
"""Names in a list of a project."""


_USER = r"[^\s@\x00-\x1f\x7f,][^\x00-\x1f\x7f,]{0,127}"
_GROUP_OF_USERS = "@[A-Za-z0-9/][A-Za-z0-9._@+:/ -]{0,127}"
UserName = Annotated[
    str, text(_USER, "bad_user", "is not the name of a user", "1 to 128 printable characters")
]
MemberName = Annotated[
    str,
    text(
        f"{_USER}|{_GROUP_OF_USERS}",
        "bad_user",
        "is neither the name of a user nor @GROUP",
        "ada, or @nlp for a group of the issuer of tokens",
    ),
]
Members = Annotated[tuple[MemberName, ...], at_most(MAX_NAMES, f"at most {MAX_NAMES} names")]
_PART = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
PATH_PATTERN = f"^/?({_PART}(/{_PART}){{0,{MAX_DEPTH - 1}}})?$"
ProjectPath = Annotated[
    str,
    msgspec.Meta(
        extra_json_schema={"maxLength": 520, "pattern": PATH_PATTERN}, examples=["/research/nlp"]
    ),
]
"""Checked by `normal`, which tells the component that is wrong."""


class ProjectSpec(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """What is set of a project; the body of ``PUT /v1/projects/{path}``.

    Attributes:
        guarantee: what it, with the projects below it, may hold before work that has no guarantee for it,
            and takes back from those that use it meanwhile; without a resource: nothing of that.
        weight: its part among the projects beside it, where there is fair share. None: none is set,
            and it counts as 1.
        limit: what its running tasks and those of projects below it hold together; what is beyond
            goes behind others of its band.
        max_pending_tasks: its waiting tasks, and those below it; a job that would pass it is refused.
            0: no limit.
        members: who may submit to it and to the projects below it: users, and each member of a
            ``@GROUP``.
        admins: members who also change its jobs, and set the projects below it.
        default_for: users whose jobs are in it that name no project.
    """

    guarantee: ResourceLimits = ResourceLimits()
    weight: (
        Annotated[
            float, more_than_0(MAX_WEIGHT, "a weight of ", hint="1 is that of a project without")
        ]
        | None
    ) = None
    limit: ResourceLimits = ResourceLimits()
    max_pending_tasks: Annotated[int, between(0, MOST_OF_ALL)] = 0
    members: Members = ()
    admins: Members = ()
    default_for: Annotated[
        tuple[UserName, ...], at_most(MAX_NAMES, f"at most {MAX_NAMES} names")
    ] = ()


NOT_OF_ROOT = ("guarantee", "weight", "members", "admins", "default_for")
"""Fields that the root has not, which is everybody's and has nobody beside it."""
SET_BY_ITS_ADMINS = ("members", "default_for")
"""Fields that an admin of a project sets of it; an admin of a project above it sets all."""


def normal(text: str) -> str:
    """The path with its leading slash and without one at its end. Raises Refused naming the part that
    is wrong.
    """
    path = text.removeprefix(ROOT)
    if not path:
        return ROOT
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise Refused(
            Code.INVALID, f"a project has at most {MAX_DEPTH} levels, this one has {len(parts)}"
        )
    for part in parts:
        check_component(part)
    return f"{ROOT}{path}"


def parent_of(path: str) -> str:
    """The path above one that is not the root."""
    return path.rpartition("/")[0] or ROOT


def upwards(path: str) -> Iterator[str]:
    """A path and those above it, the root last."""
    yield from within(path)
    yield ROOT


def within(path: str) -> Iterator[str]:
    """A path and those above it, without the root."""
    while path not in ("", ROOT):
        yield path
        path = path.rpartition("/")[0]


def is_below(path: str, above: str) -> bool:
    """Whether a path is strictly below another one."""
    return path != above and (above == ROOT or path.startswith(f"{above}/"))


def order_of(path: str) -> tuple[str, ...]:
    """The key by which a sorted tree has each project right before those below it."""
    return tuple(path.split("/")) if path != ROOT else ()
