"""Objects of the HTTP API about projects. Stable: fields are only added."""

from __future__ import annotations

import msgspec

from iris_core.views.jobs import ActorView, Page, View


class ProjectView(View, kw_only=True):
    """A project: what was set of it, and how it goes.

    Attributes:
        parent: the project above it; None of the root. children: those right below it.
        guarantee: what it holds before others, and takes back from them; without a resource: nothing.
        weight: its part among the projects beside it, where there is fair share; None: none is set,
            which counts as 1. share: what it has had of late over its weight's part, 1: just; None:
            there is no fair share.
        limit: what is beyond it goes behind others of its band; without a resource: no limit.
            max_pending_tasks: 0: no limit.
        members, admins: its own; those of the projects above it are members and admins too.
        default_for: users whose jobs are in it that name no project.
        used: what running tasks hold in it and below it. borrowed: what of that is beyond a guarantee of
            it or above it; all of it where there is none. near: what it may still start ahead of
            others; both are empty while no project has a guarantee. pending_tasks: that wait there.
        version: grows with every change. by: who has made the last one; None: nobody has set it.
        warnings: what an admin should look at; in the answer to a change also what follows from it.
    """

    path: str
    parent: str | None
    children: list[str]
    guarantee: dict[str, int] = msgspec.field(default_factory=dict)
    limit: dict[str, int]
    max_pending_tasks: int
    members: list[str]
    admins: list[str]
    default_for: list[str]
    used: dict[str, int]
    borrowed: dict[str, int] = msgspec.field(default_factory=dict)
    near: dict[str, int] = msgspec.field(default_factory=dict)
    running_tasks: int
    pending_tasks: int
    version: int
    by: ActorView | None
    weight: float | None = None
    share: float | None = None
    warnings: list[str] = msgspec.field(default_factory=list)


class ShareView(View, kw_only=True):
    """What a project, or a user whose jobs are right in it, has had of late beside its siblings: the
    projects and users right below the same project that have work.

    Attributes:
        user: None: the project itself, with all below it.
        weight: of a user, and where none is set, 1. weight_part: its part of the weights of its
            siblings and itself.
        usage: what it has used, halved with every half-life: seconds of the whole cluster.
            usage_part: its part of what its siblings and it have used, as of when the steps were
            renewed.
        share: usage_part over weight_part; 1 is just, and who has less goes first. step: the whole part
            of log2 of it, which stands in the order of the queue.
        running: the part of the cluster that it holds. pending_tasks: that wait there.
    """

    project: str
    user: str | None
    weight: float
    weight_part: float
    usage: float
    usage_part: float
    share: float
    step: int
    running: float
    pending_tasks: int


class SharePage(Page, kw_only=True):
    """Shares in the order of the tree. ``enabled``: there is fair share; otherwise nothing is counted,
    and there are no items.
    """

    enabled: bool
    items: list[ShareView]


class MembershipsView(View, kw_only=True):
    """What somebody is in some projects, by their paths: a number of `access.rights.Membership`."""

    memberships: dict[str, int]
