"""The limits of what a worker keeps, for settings and for the modules that enforce them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArtifactLimits:
    """How big the output directory of one attempt may be: its files, and how many entries it may
    have.
    """

    bytes: int = 1 << 30
    entries: int = 100_000


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """How big a bundle may be.

    Attributes:
        entries: files, directories and links. bytes: all files unpacked.
        ratio: unpacked by packed size, checked once more than ``ratio_from`` bytes are unpacked.
    """

    entries: int = 100_000
    bytes: int = 4 * 1024**3
    ratio: int = 200
    ratio_from: int = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class EnvironmentLimits:
    """How much is kept; the environments of live attempts are kept in any case."""

    count: int = 64
    bytes: int = 32 << 30


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The rate at which output of a running attempt is sent, after a burst, and how much of its
    output is kept.
    """

    bytes_per_s: int = 8 * 1024 * 1024
    burst_bytes: int = 64 * 1024 * 1024
    attempt_bytes: int = 256 * 1024 * 1024
