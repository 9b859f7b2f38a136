"""Views of projects. docs/design/team.md#projects."""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.access.rights import Membership
from iris_core.messages.gateway_state import Caller
from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import ROOT, order_of, parent_of
from iris_core.spec.resources import Amount, ResourceLimits
from iris_core.views.projects import MembershipsView, ProjectView
from iris_core.views.queries import MembershipsQuery, ProjectsQuery
from iris_state.records.ledger import Ledger
from iris_state.records.projects import Project
from iris_state.records.shares import ShareKey
from iris_state.views.actors import actor_view
from iris_state.views.pages import Piece, behind_name, cursor_of, page

_SHOWN = 5
"""Users that a warning names."""
NO_GUARANTEE = ResourceLimits()


def project_view(
    ledger: Ledger, project: Project, *, children: list[str] | None = None
) -> ProjectView:
    """One project. ``children``: the paths right below it, where they are known."""
    path = project.path
    spec = project.spec
    if children is None:
        children = [one for one in ledger.projects.below(path) if parent_of(one) == path]
    running, held = ledger.held_in(path)
    borrowed, near = _sides(ledger, path, held)
    return ProjectView(
        path=path,
        parent=parent_of(path) if path != ROOT else None,
        children=children,
        guarantee={
            row.name: n for _, row in RUNNING_LIMITS if (n := getattr(spec.guarantee, row.name))
        },
        weight=spec.weight,
        share=round(ledger.shares.share(ShareKey(path, "")), 3) if ledger.shares.enabled else None,
        limit={row.name: n for _, row in RUNNING_LIMITS if (n := getattr(spec.limit, row.name))},
        max_pending_tasks=spec.max_pending_tasks,
        members=list(spec.members),
        admins=list(spec.admins),
        default_for=list(spec.default_for),
        used={row.name: getattr(held, row.name) for _, row in RUNNING_LIMITS},
        borrowed=borrowed,
        near=near,
        running_tasks=running,
        pending_tasks=ledger.pending_in(path),
        version=project.version,
        by=actor_view(project.by),
        warnings=list(_warnings(ledger, project)),
    )


def _sides(ledger: Ledger, path: str, held: Amount) -> tuple[dict[str, int], dict[str, int]]:
    """What a project holds beyond guarantees, and what it may start within them; empty while there are
    none.
    """
    borrowed: dict[str, int] = {}
    near: dict[str, int] = {}
    if path == ROOT or not any(one.spec.guarantee != NO_GUARANTEE for one in ledger.projects):
        return borrowed, near
    for _, row in RUNNING_LIMITS:
        own = getattr(held, row.name)
        left = [
            most - getattr(ledger.held_in(one.path)[1], row.name)
            for one in ledger.projects.on_the_way(path)
            if (most := getattr(one.spec.guarantee, row.name))
        ]
        borrowed[row.name] = min(own, max(0, -min(left))) if left else own
        if left:
            near[row.name] = max(0, min(left))
    return borrowed, near


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
        guaranteed = getattr(project.spec.guarantee, row.name)
        is_more = guaranteed > getattr(ledger.host_sums.capacity, row.name)
        if is_more and guaranteed > (most := _ever(ledger, row.name)):
            show = row.unit.show
            some = f"{show(most)} together" if most else "none"
            yield (
                f"its guarantee of {show(guaranteed)} {row.words} cannot be held: all registered hosts "
                f"and pools at their largest have {some}"
            )
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


def _ever(ledger: Ledger, resource: str) -> int:
    """What registered hosts, and all pools at their largest, have of a resource together."""
    fleet = ledger.fleet
    registered = outside = 0
    for host in ledger.workers.values():
        amount: int = getattr(host.total, resource)
        registered += amount
        outside += amount if fleet.of_host(host.id) is None else 0
    pools = (pool.spec for pool in fleet.pools.values())
    most: int = sum(spec.max * spec.hosts * getattr(spec.resources, resource) for spec in pools)
    return max(registered, outside + most)
