"""docs/rights.md: who may do what, from `iris_core.access.rights`."""

from __future__ import annotations

from drawings.markdown import document, grid
from iris_core.access.rights import CALLER_ROLES, RIGHTS, Right
from iris_core.access.task_tokens import ROLE as TASK

EXPLAINED = """\
A row is what a caller wants to do; a column is the role of its token. "own": only with records whose owner is the
caller, "all": with those of everybody. The owner is of the record, so a name that is used again gives no rights.

* "in a project" is what somebody may do with records in a project besides: with the token of a user as its member, or
  as its admin; `task`: also with the token of a task of that user. Members and admins of a project are that of all
  projects below it ([Projects](howto/team.md)).
* `task` is the token of an attempt, whose user is the owner of its job. It reaches its own subtree and
  what was submitted beside it only, and executes commands in its own job only: see [Access](access.md).
* What everybody reads (jobs, queue, hosts, reasons, events) is not in the table.
* With authentication off (`--no-auth`), every caller has the role `admin` and the name that it claims."""


def rights_document() -> str:
    """The page."""
    rows = []
    for verb, right in RIGHTS.items():
        cells = [
            "all" if role in right.others else "own" if role in right.own else ""
            for role in CALLER_ROLES
        ]
        rows.append((verb.value, *cells, _in_project(right)))
    return document(
        "Rights",
        "`iris_core.access.rights`",
        EXPLAINED,
        grid(("what", *(f"`{role}`" for role in CALLER_ROLES), "in a project"), rows),
    )


def _in_project(right: Right) -> str:
    """Whom of a project it lets."""
    who = "members" if right.members else "admins" if right.project_admins else ""
    return f"{who}, `{TASK}` too" if TASK in right.members | right.project_admins else who
