"""The settings of the scheduler; each is a key of `[scheduler]`. Defaults: docs/design/semantics.md."""

from __future__ import annotations

import msgspec


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the scheduler weighs waiting against order, all times in seconds.

    Attributes:
        name: what it signs its plans with.
        gang_reservation_after_s: how long a gang is passed over before a group is kept for it.
        reason_interval_s: how often, at most, the reason of a large class of waiting jobs is published again.
        rejected_backoff_s, refused_longest_s: the first pause of a job after the state service refused it a place,
            which doubles each time in a row, and the longest.
        stop_timeout_s: how long the room of an attempt that was ordered to stop is counted on; when it has not
            stopped by then, whoever waits for its place is weighed again without it. Longer than `stop_grace_s` of
            `[state]`.
        answer_timeout_s: how long the state service may take to answer.
        plan_spacing_s: between plans when very many attempts are open, so that each holds more; plan_burst of
            them go at once after a rest.
        check_s: how often it asks the state service whether it has missed anything.
    """

    name: str = "scheduler"
    gang_reservation_after_s: float = 300.0
    reason_interval_s: float = 2.0
    rejected_backoff_s: float = 0.05
    refused_longest_s: float = 5.0
    stop_timeout_s: float = 15.0
    answer_timeout_s: float = 5.0
    check_s: float = 5.0
    plan_burst: int = 8
    plan_spacing_s: float = 0.01

    @property
    def gang_reservation_after_ms(self) -> int:
        return int(self.gang_reservation_after_s * 1000)

    @property
    def reason_interval_ms(self) -> int:
        return int(self.reason_interval_s * 1000)

    @property
    def stop_timeout_ms(self) -> int:
        return int(self.stop_timeout_s * 1000)

    def rejected_backoff_ms(self, times: int) -> int:
        """How long a job pauses after it was refused for the ``times``-th time in a row, counted from 1."""
        return int(min(self.rejected_backoff_s * 2 ** min(times - 1, 16), self.refused_longest_s) * 1000)
