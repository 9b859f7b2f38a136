"""Holds on the queue: who keeps which jobs out of it, present and future ones. Types and matching;
it decides nothing.

A job that a hold matches has a gate with the hold's number. Source:
docs/adr/0084-a-job-is-changed-in-place.md.
"""

from __future__ import annotations

import msgspec

from iris_core.access.actor import Actor
from iris_core.spec.jobs import JobSpec
from iris_state.records.gates import Gate, GateKind


class QueueHold(msgspec.Struct, array_like=True, frozen=True):
    """One hold. New fields go last, with a default.

    Attributes:
        user, band, label: what a job must have; empty: anything. A label is ``key=value``.
    """

    number: int
    user: str = ""
    band: str = ""
    label: str = ""
    by: Actor | None = None
    at_ms: int = 0
    reason: str = ""

    @property
    def id(self) -> str:
        return f"h{self.number}"

    @property
    def words(self) -> str:
        """What it holds: ``user mia, band batch``."""
        parts = {"user": self.user, "band": self.band, "label": self.label}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value)

    def matches(self, user: str, spec: JobSpec) -> bool:
        """Whether it holds a user's job; routes of deployments go on, which have controls of their
        own.
        """
        key, _, value = self.label.partition("=")
        return (
            spec.probe is None
            and self.user in ("", user)
            and self.band in ("", spec.band)
            and (not self.label or spec.labels.get(key) == value)
        )

    def gate(self, number: int) -> Gate:
        """The gate with this number of a job that it holds."""
        return Gate(
            number,
            GateKind.HELD,
            by=self.by,
            at_ms=self.at_ms,
            reason=self.reason,
            hold=self.number,
        )
