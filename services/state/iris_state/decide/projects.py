"""In which project a new job or deployment is, and whether its user may submit there. Pure: reads the
ledger. Source: docs/design/team.md#projects.
"""

from __future__ import annotations

from iris_core.access.rights import Verb, may
from iris_core.errors import Code, Invalid, Mistake, Refused
from iris_core.messages.gateway_state import Caller
from iris_core.spec.projects import ROOT, normal
from iris_state.records.entities import Job
from iris_state.records.ledger import Ledger

_SHOWN = 5
"""Admins of a project that a refusal names."""


def project_of(
    ledger: Ledger, asked: str, user: str, caller: Caller, parent: Job | None = None
) -> str:
    """The path that a new job or deployment of a user gets, as `JobSpec.project` keeps it.

    ``asked``: what its specification says. Raises Invalid for an unknown project, or another one than
    its parent's; Refused when the user may not submit there.
    """
    path = _wanted(ledger, asked, user, parent)
    if path == ROOT:
        return ""
    if ledger.projects.find(path) is None:
        near = ledger.projects.nearest(path)
        raise _wrong("unknown_project", f"there is no project {path}", near)
    if not may(caller, Verb.SUBMIT_TO, membership=ledger.membership(user, path)):
        raise Refused(Code.FORBIDDEN, _not_a_member(ledger, path, user, is_default=not asked))
    return path


def _wanted(ledger: Ledger, asked: str, user: str, parent: Job | None) -> str:
    path = normal(asked) if asked else ""
    if parent is not None:
        above = parent.spec.project_path
        if path not in ("", above):
            words = (
                f"{parent.name} is in project {above}, and so are the jobs below it, not in {path}"
            )
            raise _wrong("not_of_parent", words, "leave project out")
        return above
    return path or ledger.projects.default_of.get(user, ROOT)


def _wrong(code: str, message: str, hint: str) -> Invalid:
    return Invalid([Mistake(pointer="/project", code=code, message=message, hint=hint)])


def _not_a_member(ledger: Ledger, path: str, user: str, *, is_default: bool) -> str:
    which = f"{path}, the default project of {user}" if is_default else f"project {path}"
    admins = ledger.projects.admins(path)
    more = f" and {len(admins) - _SHOWN} more" if len(admins) > _SHOWN else ""
    who = f"its admins are {', '.join(admins[:_SHOWN])}{more}" if admins else "it has no admin"
    return f"{user} is no member of {which}; {who}, and an admin of the cluster may add members"
