"""Why something waits: one enumeration, used by API, CLI, page, metric label and documentation anchor alike.

A reason is a typed value; its words are made here and nowhere else. Source: semantics.md section 9.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class ReasonCode(StrEnum):
    """Kinds of waiting, in the order in which they are looked for."""

    NOT_YET_LOOKED_AT = "not_yet_looked_at"
    NO_WORKERS = "no_workers"
    NO_MATCH = "no_match"
    OVER_QUOTA = "over_quota"
    NOT_ENOUGH_CPU = "not_enough_cpu"
    NOT_ENOUGH_MEMORY = "not_enough_memory"
    NOT_ENOUGH_DISK = "not_enough_disk"
    NOT_ENOUGH_CHIPS = "not_enough_chips"
    BUILDING_WINDOW_FULL = "building_window_full"
    GANG_NEEDS_GROUP = "gang_needs_group"
    BEHIND = "behind"
    WAITING_FOR_VICTIM = "waiting_for_victim"
    RESERVED_FOR_GANG = "reserved_for_gang"
    DELAYED = "delayed"


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the pending tasks of one job wait.

    Attributes:
        facts: numbers and words the message was made from, e.g. ``{"asked": 8, "best_free": 4, "workers_short": 12}``
            or, for no_match, ``{"removed_by": {"zone eq eu-1": 7, "device-type eq tpu": 3}}``.
    """

    code: ReasonCode
    message: str
    facts: dict[str, Any] = {}


NOT_YET_LOOKED_AT = Reason(ReasonCode.NOT_YET_LOOKED_AT, "the scheduler has not looked at it yet")
