"""The settings of the scheduler; each is a key of `[scheduler]`. Defaults:
docs/design/semantics.md.
"""

from __future__ import annotations

import msgspec

from iris_core.limits import NonNegativeFloat, PositiveFloat, PositiveInt


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the scheduler. Times in seconds.

    Attributes:
        name: this scheduler's name in its plans.
        gang_reservation_after_s: how long a gang is pending before a group is reserved for it.
        task_reservation_after_s: how long a single task is pending, while smaller tasks take what
            becomes free, before a host is reserved for it.
        reason_interval_s: the shortest interval between two published reasons of a large class of
            pending jobs.
        rejected_backoff_s: the first pause of a job whose placement the state service rejected;
            doubles with each rejection in a row.
        rejected_backoff_max_s: the longest such pause.
        reclaim_min_s: how long a task that gave way to work within a guarantee may not itself make
            work of its band give way.
        stop_timeout_s: how long the capacity of an attempt that was ordered to stop counts as being
            freed; afterwards tasks that wait for it are planned without it. Must be longer than
            `stop_grace_s` of `[state]`.
        answer_timeout_s: timeout of requests to the state service.
        plan_spacing_s: interval between plans when very many attempts are open, so that each plan
            holds more.
        plan_burst: plans that are made without that interval after an idle time.
        check_s: interval between checks with the state service that no delta was missed.
    """

    name: str = "scheduler"
    gang_reservation_after_s: NonNegativeFloat = 300.0
    task_reservation_after_s: NonNegativeFloat = 10.0
    reason_interval_s: NonNegativeFloat = 2.0
    rejected_backoff_s: PositiveFloat = 0.05
    rejected_backoff_max_s: PositiveFloat = 5.0
    reclaim_min_s: NonNegativeFloat = 300.0
    stop_timeout_s: NonNegativeFloat = 15.0
    answer_timeout_s: PositiveFloat = 5.0
    check_s: PositiveFloat = 5.0
    plan_burst: PositiveInt = 8
    plan_spacing_s: NonNegativeFloat = 0.01

    @property
    def gang_reservation_after_ms(self) -> int:
        return int(self.gang_reservation_after_s * 1000)

    @property
    def task_reservation_after_ms(self) -> int:
        return int(self.task_reservation_after_s * 1000)

    @property
    def reason_interval_ms(self) -> int:
        return int(self.reason_interval_s * 1000)

    @property
    def reclaim_min_ms(self) -> int:
        return int(self.reclaim_min_s * 1000)

    @property
    def stop_timeout_ms(self) -> int:
        return int(self.stop_timeout_s * 1000)

    def rejected_backoff_ms(self, times: int) -> int:
        """Backoff in ms after the ``times``-th rejection in a row, counted from 1."""
        return int(
            min(self.rejected_backoff_s * 2 ** min(times - 1, 16), self.rejected_backoff_max_s)
            * 1000
        )
