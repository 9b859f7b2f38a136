"""Parses and shows times as users write them: durations, and moments or durations from now. Pure.

Raises ValueError, with a text for a person.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PLAIN = re.compile(r"\d+(?:\.\d+)?\Z")
_CLOCK = re.compile(
    r"(?:(?P<days>\d+)-)?(?P<hours>\d+):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)\Z"
)
_LARGER = (("d", 86_400), ("h", 3600), ("m", 60))
_LONGEST_TEXT = 64
LAST_MS = 253_402_300_799_000
"""The end of the year 9999."""


def parse_duration(text: str) -> float:
    """Seconds. ``90``, ``90s``, ``10m``, ``1h30m``, ``1h 30m``, ``500ms``, ``2d``, ``01:30:00``."""
    plain = re.sub(r"(?<=[a-z])\s+(?=\d)", "", text.strip().lower())
    if _PLAIN.match(plain):
        return float(plain)
    if clock := _CLOCK.match(plain):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    parts = _DURATION_PART.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise ValueError(
            f"{text[:80]!r} is not a time; write for example 90s, 10m, 1h30m or 01:30:00"
        )
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts))


def show_duration(seconds: float) -> str:
    """``90s``, ``10m``, ``2h``, ``3d``: in the largest unit that gives a whole number."""
    whole = (
        f"{seconds / size:.15g}{unit}" for unit, size in _LARGER if seconds and not seconds % size
    )
    return next(whole, f"{seconds:.15g}s")


def parse_moment(text: str, now_ms: int) -> int:
    """The time that ``2026-03-01T22:00:00Z`` names, or ``8h`` after ``now_ms``; ms since the
    epoch.
    """
    wrong = f"{text[:80]!r} is neither a moment nor a duration; write for example 2026-03-01T22:00:00Z or 8h"
    if len(text) > _LONGEST_TEXT:
        raise ValueError(wrong)
    try:
        at_ms = now_ms + int(parse_duration(text) * 1000)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(wrong) from None
        if moment.tzinfo is None:
            utc = moment.isoformat()
            raise ValueError(f"{text!r} names no time zone; write {utc}Z for UTC") from None
        at_ms = int(moment.astimezone(UTC).timestamp() * 1000)
    if at_ms > LAST_MS:
        raise ValueError(f"{text!r} is after the year 9999")
    return at_ms
