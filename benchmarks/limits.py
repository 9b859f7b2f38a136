"""The limits of `limits.toml`, and what a measurement says of them. Pure but for reading the
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

FILE = Path(__file__).resolve().parent / "limits.toml"


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bound of one figure, with the reason for its value; one of the two bounds is set."""

    reason: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        return (
            f"at least {self.at_least:g}"
            if self.at_least is not None
            else f"at most {self.at_most:g}"
        )


def read(path: Path = FILE) -> dict[str, Limit]:
    """The limits by the name of their figure. Raises msgspec.ValidationError."""
    return msgspec.toml.decode(path.read_bytes(), type=dict[str, Limit])


def passed(limits: Mapping[str, Limit], figures: Mapping[str, float]) -> set[str]:
    """The limits that hold; one whose figure could not be measured here does not."""
    return {
        name for name, limit in limits.items() if name in figures and limit.holds(figures[name])
    }
