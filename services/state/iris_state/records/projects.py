"""The records of projects: the nodes of a tree, by path, and what follows from their lists.

Fields and lookups only; `apply.projects` alone writes. Source: docs/design/team.md#projects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import takewhile

import msgspec

from iris_core.access.actor import Actor
from iris_core.access.rights import Membership
from iris_core.placement.guarantees import Guarantees, held_of
from iris_core.quota import GROUP
from iris_core.spec.projects import ROOT, ProjectSpec, is_below, order_of, parent_of, upwards


class Project(msgspec.Struct, array_like=True):
    """One project. ``version`` grows with every change, for compare-and-set."""

    path: str
    spec: ProjectSpec = ProjectSpec()
    version: int = 1
    set_ms: int = 0
    by: Actor | None = None


def _shared(path: str, other: str) -> int:
    """How many of the first parts of two paths are the same."""
    pairs = zip(order_of(path), order_of(other), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class ProjectTree:
    """All projects that were set; the root is there in any case.

    Attributes:
        default_of: the path of each user for whom one is the default.
    """

    __slots__ = ("_by_path", "_named", "default_of")

    def __init__(self) -> None:
        self._by_path: dict[str, Project] = {}
        self._named: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self.default_of: dict[str, str] = {}

    def __len__(self) -> int:
        """How many were set."""
        return len(self._by_path)

    def __iter__(self) -> Iterator[Project]:
        """Those that were set."""
        return iter(self._by_path.values())

    def put(self, project: Project) -> None:
        """Add a project, or take it in place of the one of its path."""
        self.drop(project.path)
        self._by_path[project.path] = project
        self._named[project.path] = (
            frozenset(project.spec.members),
            frozenset(project.spec.admins),
        )
        for user in project.spec.default_for:
            self.default_of[user] = project.path

    def drop(self, path: str) -> None:
        """Remove a project, if it is there."""
        before = self._by_path.pop(path, None)
        self._named.pop(path, None)
        for user in before.spec.default_for if before is not None else ():
            if self.default_of.get(user) == path:
                del self.default_of[user]

    def find(self, path: str) -> Project | None:
        """The project of a path."""
        found = self._by_path.get(path)
        return Project(ROOT) if found is None and path == ROOT else found

    def in_order(self) -> list[Project]:
        """The root and all others, each right before those below it."""
        others = [one for one in self._by_path.values() if one.path != ROOT]
        root = self.find(ROOT)
        assert root is not None
        return [root, *sorted(others, key=lambda one: order_of(one.path))]

    def below(self, path: str) -> list[str]:
        """The paths strictly below one, in order."""
        return sorted((one for one in self._by_path if is_below(one, path)), key=order_of)

    def children(self, path: str) -> Iterator[Project]:
        """The projects right below one."""
        return (
            one
            for one in self._by_path.values()
            if one.path != ROOT and parent_of(one.path) == path
        )

    def guaranteed_below(self, path: str, resource: str) -> int:
        """What the projects right below one are guaranteed of a resource together."""
        return sum(getattr(one.spec.guarantee, resource) for one in self.children(path))

    def guarantees(self) -> Guarantees:
        """What is guaranteed, with nothing held of it."""
        return Guarantees({one.path: held_of(one.spec.guarantee) for one in self._by_path.values()})

    def on_the_way(self, path: str) -> Iterator[Project]:
        """The project of a path and those above it that were set, the root last."""
        if self._by_path:
            for place in upwards(path):
                found = self._by_path.get(place)
                if found is not None:
                    yield found

    def nearest(self, path: str) -> str:
        """The known path that is most like an unknown one: among those with a similar last name, else
        the nearest above it.
        """
        names: dict[str, list[str]] = {}
        for one in self._by_path:
            names.setdefault(one.rpartition("/")[2], []).append(one)
        near = get_close_matches(path.rpartition("/")[2], names, n=1)
        if near:
            return max(names[near[0]], key=lambda one: _shared(one, path))
        return next(one for one in upwards(path) if one == ROOT or one in self._by_path)

    def membership(self, user: str, groups: Sequence[str], path: str) -> Membership:
        """What a user is in a project: by its own lists, and by those of the projects above it."""
        names = (user, *(f"{GROUP}{group}" for group in groups)) if user else ()
        best = Membership.NONE
        for project in self.on_the_way(path):
            members, admins = self._named[project.path]
            if not admins.isdisjoint(names):
                return Membership.ADMIN
            if not members.isdisjoint(names):
                best = Membership.MEMBER
        return best

    def admins(self, path: str) -> list[str]:
        """Who is an admin of a project, its own admins first."""
        return list(
            dict.fromkeys(name for project in self.on_the_way(path) for name in project.spec.admins)
        )
