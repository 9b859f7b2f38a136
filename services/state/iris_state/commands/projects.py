"""Executes commands on projects: set and remove. Raises `Refused`.

An admin of the cluster may all; an admin of a project sets the projects below it, and of its own the
members and the defaults. Source: docs/design/team.md#projects.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from iris_core.access.rights import Membership, Verb, may
from iris_core.admission import actions
from iris_core.admission.projects import validate_project
from iris_core.errors import Code, Invalid, Mistake, Refused, pointer_to
from iris_core.messages.gateway_state import Caller, ProjectCommand
from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import (
    MAX_PROJECTS,
    ROOT,
    SET_BY_ITS_ADMINS,
    ProjectSpec,
    normal,
    parent_of,
)
from iris_core.spec.resources import Resource
from iris_core.units import counted
from iris_state.records.changes import ProjectRemoved, ProjectSet
from iris_state.records.claims import Step
from iris_state.records.ledger import Ledger
from iris_state.records.projects import Project
from iris_state.records.targets import known_project

_SHOWN = 3
"""Jobs or projects that a refusal names."""


def on_project(ledger: Ledger, command: ProjectCommand) -> Iterator[Step]:
    """Execute a command, or raise Refused (Invalid lists every mistake)."""
    asked = command.asked
    path = normal(command.path)
    if isinstance(asked, actions.SetProject):
        yield from _set(ledger, path, asked, command.caller)
    else:
        yield from _remove(ledger, path, asked, command.caller)


def _set(ledger: Ledger, path: str, asked: actions.SetProject, caller: Caller) -> Iterator[Step]:
    spec = asked.spec
    if spec is None:
        raise Refused(Code.INVALID, "set needs a specification")
    known = ledger.projects.find(path)
    _check_version(known, path, asked.version)
    _check_may_set(ledger, path, known, spec, caller)
    if mistakes := validate_project(path, spec):
        raise Invalid(mistakes)
    if path != ROOT and ledger.projects.find(parent_of(path)) is None:
        near = ledger.projects.nearest(parent_of(path))
        words = f"there is no project {parent_of(path)} above {path}"
        raise Invalid(
            [Mistake(pointer="", code="unknown_project", message=words, hint=f"set {near} first")]
        )
    if known is None and len(ledger.projects) >= MAX_PROJECTS:
        raise Refused(Code.OVER_QUOTA, f"there are {MAX_PROJECTS} projects, which is the limit")
    if mistakes := list(_without_membership(ledger, path, spec)):
        raise Invalid(mistakes)
    if mistakes := list(_beyond_guarantees(ledger, path, spec)):
        raise Invalid(mistakes)
    if known is not None and known.spec == spec:
        return
    for user in spec.default_for:
        yield from _taken_from(ledger, user, path)
    yield ProjectSet(path, spec)


def _check_version(known: Project | None, path: str, version: int) -> None:
    if known is None and version:
        raise Refused(Code.CHANGED, f"there is no project {path}")
    if known is not None and version not in (0, known.version):
        words = f"{path} has been changed since: it is at version {known.version}, not {version}"
        raise Refused(Code.CHANGED, words)


def _membership(ledger: Ledger, caller: Caller, path: str) -> Membership:
    """The caller's in the project above a path, of which it has to be an admin to set or remove
    that.
    """
    return Membership.NONE if path == ROOT else ledger.membership(caller.user, parent_of(path))


def _check_may_set(
    ledger: Ledger, path: str, known: Project | None, spec: ProjectSpec, caller: Caller
) -> None:
    if may(caller, Verb.SET_BELOW, membership=_membership(ledger, caller, path)):
        return
    of_it = ledger.membership(caller.user, path)
    if known is None or not may(caller, Verb.SET_MEMBERS, membership=of_it):
        who = "an admin of the cluster" if path == ROOT else "an admin of a project above it"
        raise Refused(Code.FORBIDDEN, f"{path} is set by {who}, which {caller.user} is not")
    own = replace(known.spec, **{name: getattr(spec, name) for name in SET_BY_ITS_ADMINS})
    if own != spec:
        words = f"{caller.user} is an admin of {path} and sets its members and defaults"
        raise Refused(
            Code.FORBIDDEN,
            f"{words}; an admin of a project above it sets its guarantee, weight, limits and admins",
        )


def _without_membership(ledger: Ledger, path: str, spec: ProjectSpec) -> Iterator[Mistake]:
    """Users for whom a project may not be the default, since they may not submit to it."""
    names = {*spec.members, *spec.admins}
    for number, user in enumerate(spec.default_for):
        groups = ledger.groups.get(user, ())
        is_listed = not names.isdisjoint({user, *(f"@{group}" for group in groups)})
        above = parent_of(path) if path != ROOT else ROOT
        if not is_listed and ledger.membership(user, above) is Membership.NONE:
            yield Mistake(
                pointer=pointer_to("default_for", number),
                code="no_member",
                message=f"{user} is no member of {path}, nor known to be in a group that is",
                hint=f"add {user} to members",
            )


def _beyond_guarantees(ledger: Ledger, path: str, spec: ProjectSpec) -> Iterator[Mistake]:
    """Resources of which projects would be guaranteed more than the one above them; the root has no
    bound.
    """
    above = parent_of(path) if path != ROOT else ROOT
    parent = ledger.projects.find(above)
    for _, row in RUNNING_LIMITS:
        own = getattr(spec.guarantee, row.name)
        below = ledger.projects.guaranteed_below(path, row.name)
        if below > own and path != ROOT:
            yield _over_guarantee(row, below, path, own, hint="lower those first")
        if not own or above == ROOT or parent is None:
            continue
        known = ledger.projects.find(path)
        before = getattr(known.spec.guarantee, row.name) if known is not None else 0
        among = ledger.projects.guaranteed_below(above, row.name) - before + own
        most = getattr(parent.spec.guarantee, row.name)
        if among > most:
            hint = f"raise that of {above} first, or ask for at most {row.unit.show(most - among + own)}"
            yield _over_guarantee(row, among, above, most, hint=hint)


def _over_guarantee(row: Resource, among: int, above: str, most: int, hint: str) -> Mistake:
    show = row.unit.show
    return Mistake(
        pointer=f"/guarantee/{row.name}",
        code="over_parent",
        message=f"projects right below {above} would be guaranteed {show(among)} {row.words} together, "
        f"and {above} is guaranteed {show(most)}",
        hint=hint,
    )


def _taken_from(ledger: Ledger, user: str, path: str) -> Iterator[Step]:
    """A user has one default: what it was before is so no more."""
    before = ledger.projects.default_of.get(user, path)
    if before == path:
        return
    project = ledger.projects.find(before)
    assert project is not None
    left = tuple(name for name in project.spec.default_for if name != user)
    yield ProjectSet(before, replace(project.spec, default_for=left))


def _remove(
    ledger: Ledger, path: str, asked: actions.ProjectAction, caller: Caller
) -> Iterator[Step]:
    project = known_project(ledger, path)
    _check_version(project, path, asked.version)
    if path == ROOT:
        raise Refused(Code.CONFLICT, f"{ROOT} is everybody's and stays")
    if not may(caller, Verb.SET_BELOW, membership=_membership(ledger, caller, path)):
        words = f"{path} is removed by an admin of a project above it, which {caller.user} is not"
        raise Refused(Code.FORBIDDEN, words)
    below = ledger.projects.below(path)
    if below:
        words = f"{path} has {counted(len(below), 'project')} below it: {_some(below)}"
        raise Refused(Code.CONFLICT, f"{words}; remove those first")
    living = [
        job.name
        for job in map(ledger.jobs.__getitem__, ledger.index.of(("project", path)))
        if not job.is_terminal
    ]
    living += [
        f"deployment {one.name}"
        for one in ledger.deployments.values()
        if not one.is_terminal and one.spec.project == path
    ]
    if living:
        verb = "has" if len(living) == 1 else "have"
        words = f"{path} has {counted(len(living), 'job')} that {verb} not ended: {_some(living)}"
        raise Refused(Code.CONFLICT, f"{words}; cancel or wait for what is in it first")
    yield ProjectRemoved(path)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
