"""Limits of a user, or of each member of a group, as the SDK shows and sets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from iris.client.http.api import GatewayApi
from iris.client.http.transport import in_path
from iris.client.options.jobs import OptionReader
from iris.client.options.names import refuse_unknown
from iris.client.options.units import PARSERS
from iris_core.quota import BAND, LIMIT_NAMES, QUOTA_LIMITS


@dataclass(frozen=True, slots=True)
class UserQuota:
    """The limits of a user, or as ``@GROUP`` those of each of its members, and what is used.

    Attributes:
        limits, used: by the name of the limit, in its unit (thousandths of a core, bytes, counts);
            a limit of 0 is unlimited.
        max_band: the best band that the user may ask for.
        is_default: nothing is set for the name.
        sources: by limit, the group that it comes from, as ``@GROUP``, or ``default``; one that is
            set for the user is not there.
        groups: of the user, as the issuer of its last token named them.
    """

    user: str
    limits: Mapping[str, int]
    used: Mapping[str, int]
    max_band: str
    is_default: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


def read_quota(found: Mapping[str, Any]) -> UserQuota:
    """From an answer of the gateway; a limit that an earlier gateway does not know is not there."""
    known = [limit for limit in QUOTA_LIMITS if limit.name in found]
    return UserQuota(
        user=found["user"],
        limits={limit.name: found[limit.name] for limit in known},
        used={limit.name: found.get(limit.used, 0) for limit in known},
        max_band=found[BAND],
        is_default=found.get("is_default", False),
        sources=found.get("sources", {}),
        groups=tuple(found.get("groups", ())),
    )


def read_limits(given: Mapping[str, object]) -> dict[str, object]:
    """Limits as a person writes them (``"64GiB"``, ``8``), in their units. Raises InvalidOption
    with each mistake, TypeError for a limit that does not exist.
    """
    refuse_unknown("set_quota", given, LIMIT_NAMES)
    limits = {name: value for name, value in given.items() if value is not None}
    reading = OptionReader()
    for limit in QUOTA_LIMITS:
        if limit.name in limits:
            parse = partial(PARSERS[limit.unit], str(limits[limit.name]))
            limits[limit.name] = reading.read(parse, 0, limit.name)
    reading.finish()
    return limits


def put_limits(api: GatewayApi, user: str, limits: Mapping[str, object]) -> dict[str, Any]:
    """Set these limits of a user or ``@GROUP``, and the present ones for the others; the gateway's
    answer.
    """
    path = f"/v1/quotas/{in_path(user)}"
    return api.change("PUT", path, dict, body=_with_limits(api.get(path, dict), limits))


def _with_limits(present: Mapping[str, Any], limits: Mapping[str, object]) -> dict[str, object]:
    """All limits to set: these, and the present ones for the others."""
    return {
        name: limits.get(name, present.get(name))
        for name in LIMIT_NAMES
        if name in limits or name in present
    }
