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
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Unit:
    """What an amount counts.

    Attributes:
        metavar: placeholder of an amount in an option's help. example: an amount as users write it.
        show: formats an amount. word: what it is of, where the amount does not say so, behind a
            space.
    """

    metavar: str
    example: str
    show: Callable[[int], str]
    word: str = ""


def counted(count: int, word: str) -> str:
    """``1 job``, ``2,000 jobs``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def show_bytes(count: int) -> str:
    """``512MiB``, ``1.5GiB``: at most four digits; the client parses it back."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:.4g}{unit}"
        size /= 1024
    return f"{size:.4g}PiB" if size < 10_000 else f"{size:.0f}PiB"


def show_cores(millis: int) -> str:
    """``0.5``, ``8``."""
    return f"{millis / 1000:.15g}"


CORES = Unit("N", "0.5", show_cores, " cores")
"""Thousandths of a core."""
BYTES = Unit("SIZE", "4GiB", show_bytes)
COUNT = Unit("N", "8", str)
