"""Which fields of a project a caller is offered to set; the state service decides. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from iris_core.access.rights import Membership
from iris_core.messages.gateway_state import Caller
from iris_core.spec.projects import NOT_OF_ROOT, ROOT, SET_BY_ITS_ADMINS, ProjectSpec, parent_of
from iris_gateway.auth.bearer import may_set_below, may_set_members

FIELDS = tuple(field.name for field in msgspec.structs.fields(ProjectSpec))


def settable(caller: Caller, path: str, memberships: Mapping[str, Membership]) -> tuple[str, ...]:
    """The fields of the project at ``path`` that a caller may set; none: it is not the caller's to
    set. ``memberships``: in it, and in the one above it.
    """
    above = Membership.NONE if path == ROOT else memberships[parent_of(path)]
    if may_set_below(caller, above):
        return tuple(name for name in FIELDS if path != ROOT or name not in NOT_OF_ROOT)
    return SET_BY_ITS_ADMINS if may_set_members(caller, memberships[path]) else ()


def is_removable(path: str, fields: Collection[str]) -> bool:
    """Whether who may set these fields of a project may remove it, too."""
    return path != ROOT and set(fields) > set(SET_BY_ITS_ADMINS)
