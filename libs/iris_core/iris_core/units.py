"""Units of amounts, and formatting of amounts for display. Pure.

Out of scope: parsing user input (`iris.client.options.units`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DURATION = "SECONDS|10m"
"""Placeholder of a duration in an option's help: a bare number is seconds."""
MOMENT = f"{DURATION}|DATE"
"""Placeholder of a moment, or of a duration before or after now."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What an amount counts.

    Attributes:
        metavar: placeholder of an amount in an option's help. example: an amount as users write it.
        show: formats an amount.
    """

    metavar: str
    example: str
    show: Callable[[int], str]


def counted(count: int, word: str) -> str:
    """``1 job``, ``2,000 jobs``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def show_bytes(count: int) -> str:
    """``512MiB``, ``1.5GiB``: at most four digits; the client parses it back."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g}{unit}"
        size /= 1024
    return f"{size:.4g}TiB"


def show_cores(millis: int) -> str:
    """``0.5``, ``8``."""
    return f"{millis / 1000:g}"


CORES = Unit("N", "0.5", show_cores)
"""Thousandths of a core."""
BYTES = Unit("SIZE", "4GiB", show_bytes)
COUNT = Unit("N", "8", str)
