"""The methods of `Client` about projects: who may use how much. Source: docs/design/team.md#projects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from iris.client.http.api import GatewayApi
from iris.client.http.encode import encode_segment
from iris.client.http.transport import in_path
from iris.client.options.jobs import OptionReader, refuse
from iris.client.options.units import PARSERS
from iris.client.problems import InvalidOption, NotFound
from iris_core.codec import to_builtins
from iris_core.quota import RUNNING_LIMITS
from iris_core.spec.projects import ROOT, ProjectSpec
from iris_core.views.projects import ProjectView, ShareView

_WORDS = {resource.word: resource for _, resource in RUNNING_LIMITS}


class ProjectApi(GatewayApi):
    """Typed requests about projects."""

    def projects(self) -> Iterator[ProjectView]:
        """The root and every project, each right before those below it."""
        return self.pages("/v1/projects", ProjectView)

    def project(self, project: str) -> ProjectView:
        """A project by its path. Raises NotFound."""
        return self.get(place_of(project), ProjectView)

    def shares(self, *, project: str | None = None) -> Iterator[ShareView]:
        """What projects and their users have had of late over what is just: each project, its users,
        and then those below it. Nothing while there is no fair share; users only for admins, for
        others themselves.

        Args:
            project: only this one and those below it, with their users. Raises NotFound.
        """
        return self.pages("/v1/share", ShareView, {"project": project})

    def set_project(
        self,
        project: str,
        *,
        guarantee: Mapping[str, float | str] | None = None,
        weight: float | Literal[""] | None = None,
        limit: Mapping[str, float | str] | None = None,
        max_pending: int | None = None,
        members: Sequence[str] | None = None,
        admins: Sequence[str] | None = None,
        default_for: Sequence[str] | None = None,
    ) -> ProjectView:
        """Change the given parts of a project, or make the project; what is given replaces what is
        there.

        Args:
            guarantee: what it may hold before others, as ``{"cpu": 500, "chips": 64}``; the projects
                below one are guaranteed at most as much as that one, together.
            weight: its part among the projects beside it, where there is fair share; ``""`` unsets
                it, and it counts as 1.
            limit: ``{"cpu": 500, "memory": "4TiB", "chips": 64}``; what is left out has no limit.
            max_pending: waiting tasks; 0 is no limit.
            members, admins: users, and each member of an ``"@group"``.
            default_for: users whose jobs are in it that name no project.

        Raises InvalidOption, Rejected, NotAllowed, Conflict when somebody else has changed it
        meanwhile.
        """
        reading = OptionReader()
        lists = {"members": members, "admins": admins, "default_for": default_for}
        changes: dict[str, Any] = {
            name: reading.read(partial(_names, name, given), list[str]())
            for name, given in lists.items()
            if given is not None
        }
        if weight is not None:
            changes["weight"] = reading.read(partial(read_weight, weight), None)
        for name, amounts in (("guarantee", guarantee), ("limit", limit)):
            if amounts is not None:
                changes[name] = reading.read(partial(read_amounts, name, amounts), dict[str, int]())
        if max_pending is not None:
            changes["max_pending_tasks"] = max_pending
        reading.finish()
        try:
            found: dict[str, Any] = self.get(place_of(project), dict)
        except NotFound:
            found = {}
        kept = {name: found[name] for name in ProjectSpec.__struct_fields__ if name in found}
        return self._put(project, {**kept, **changes}, found.get("version"))

    def replace_project(
        self, project: str, spec: ProjectSpec | Mapping[str, Any], *, version: int | None = None
    ) -> ProjectView:
        """Replace all that is set of a project, or make it.

        ``spec``: also as its JSON object. ``version``: of the project as it was read; any by
        default. Raises as `set_project`.
        """
        return self._put(project, to_builtins(spec), version)

    def remove_project(self, project: str) -> None:
        """Remove a project. Raises Conflict while another one is below it, or a job in it has not
        ended; NotFound, NotAllowed.
        """
        self.change("DELETE", place_of(project), dict)

    def _put(self, project: str, fields: Mapping[str, Any], version: int | None) -> ProjectView:
        return self.change("PUT", place_of(project), ProjectView, body=fields, version=version)


def place_of(project: str) -> str:
    """Where a project is, whose path may lack its leading slash. Raises InvalidOption."""
    path = project if project.startswith(ROOT) else f"{ROOT}{project}"
    return f"/v1/projects/{encode_segment(ROOT) if project == ROOT else in_path(path)}"


def _names(option: str, given: Sequence[str]) -> list[str]:
    if isinstance(given, str):
        refuse(f"{option} is a list of names, not a text: [{given!r}]")
    return list(given)


def read_weight(given: Any) -> Any:
    """A weight; None: none is to be set. Raises InvalidOption for what JSON does not have, which would
    arrive as none.
    """
    if given == "":
        return None
    if isinstance(given, float) and not math.isfinite(given):
        raise InvalidOption("weight is not a finite number")
    return given


def read_amounts(option: str, given: Mapping[str, float | str]) -> dict[str, int]:
    """``{"cpu": 500, "memory": "4TiB"}`` in the units of the API. Raises InvalidOption."""
    found = {}
    for word, amount in given.items():
        resource = _WORDS.get(word)
        if resource is None:
            raise InvalidOption(f"{word!r} has no {option}; there are {', '.join(_WORDS)}")
        found[resource.name] = PARSERS[resource.unit](str(amount))
    return found
