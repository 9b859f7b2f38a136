"""Views of projects. docs/design/team.md#projects."""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.access.rights import Membership
from iris_core.messages.gateway_state import Caller
from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import ROOT, order_of, parent_of
from iris_core.views.projects import MembershipsView, ProjectView
from iris_core.views.queries import MembershipsQuery, ProjectsQuery
from iris_state.records.ledger import Ledger
from iris_state.records.projects import Project
from iris_state.views.actors import actor_view
from iris_state.views.pages import Piece, behind_name, cursor_of, page

_SHOWN = 5
"""Users that a warning names."""


def project_view(
    ledger: Ledger, project: Project, *, children: list[str] | None = None
) -> ProjectView:
    """One project. ``children``: the paths right below it, where they are known."""
    path = project.path
    spec = project.spec
    if children is None:
        children = [one for one in ledger.projects.below(path) if parent_of(one) == path]
    running, held = ledger.held_in(path)
    return ProjectView(
        path=path,
        parent=parent_of(path) if path != ROOT else None,
        children=children,
        limit={row.name: n for _, row in RUNNING_LIMITS if (n := getattr(spec.limit, row.name))},
        max_pending_tasks=spec.max_pending_tasks,
        members=list(spec.members),
        admins=list(spec.admins),
        default_for=list(spec.default_for),
        used={row.name: getattr(held, row.name) for _, row in RUNNING_LIMITS},
        running_tasks=running,
        pending_tasks=ledger.pending_in(path),
        version=project.version,
        by=actor_view(project.by),
        warnings=list(_warnings(ledger, project)),
    )


def projects(ledger: Ledger, query: ProjectsQuery) -> Piece:
    """The root and all others, each right before those below it."""
    found = ledger.projects.in_order()
    children: dict[str, list[str]] = {}
    for project in found[1:]:
        children.setdefault(parent_of(project.path), []).append(project.path)
    last = order_of(behind_name(query.cursor)) if query.cursor else None
    rows = (
        (cursor_of(one.path), one) for one in found if last is None or order_of(one.path) > last
    )
    return page(
        rows,
        lambda one: project_view(ledger, one, children=children.get(one.path, [])),
        query,
    )


def memberships(ledger: Ledger, query: MembershipsQuery, caller: Caller) -> MembershipsView:
    """What the caller is in each project, by which rights are judged."""
    known = ledger.groups.get(caller.user, ())
    groups = known if query.groups is None else query.groups
    return MembershipsView(
        memberships={
            path: int(ledger.projects.membership(caller.user, groups, path))
            for path in query.projects
        }
    )


def _warnings(ledger: Ledger, project: Project) -> Iterator[str]:
    path = project.path
    lost = [
        user
        for user in project.spec.default_for
        if ledger.membership(user, path) is Membership.NONE
    ]
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        names = ", ".join(lost[:_SHOWN]) + more
        yield f"it is the default of {names}, who may not submit to it"
    way = list(ledger.projects.on_the_way(path))
    if path != ROOT and not any(one.spec.members or one.spec.admins for one in way):
        yield "it has no members, nor has a project above it: only admins of the cluster submit to it"
    for _, row in RUNNING_LIMITS:
        own = getattr(project.spec.limit, row.name)
        for above in (one for one in way if one.path != path):
            most = getattr(above.spec.limit, row.name)
            if 0 < most < own:
                show = row.unit.show
                yield (
                    f"its limit of {show(own)} {row.words} is above that of {above.path}, "
                    f"{show(most)}, which holds as well"
                )
                break
