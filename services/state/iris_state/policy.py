"""The numbers that the state service decides with; each is a key of `[state]` in iris.toml.

Defaults: docs/design/semantics.md.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, NamedTuple

import msgspec

from iris_bus.journal.framing import PART_BYTES
from iris_core.limits import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from iris_core.quota import Quota
from iris_core.spec.jobs import BandName
from iris_core.states import GIVES_WAY, Cause, PriorityBand, SessionStatus
from iris_core.tables.session import PREPARE, SCHEDULE, START, StatusTimeout

_LEAST_STALL_MS = 1000
"""Twice `replication.leader.LONGEST_WAIT_S`."""


GRACE_MS = 5_000
"""The grace period of jobs that do not say, as far as timers need it."""


class GraceLimits(NamedTuple):
    """What the cluster says of the time between the stop signal and KILL.

    Attributes:
        unstated_ms: of attempts whose job does not say. longest_ms: whatever a job asks for.
            preempted_ms: of an attempt that makes room for other work.
    """

    unstated_ms: int = GRACE_MS
    longest_ms: int = 3_600_000
    preempted_ms: int = 3_600_000

    def of(self, asked_ms: int, cause: Cause | None) -> int:
        """The grace period of an attempt that is stopped for ``cause``."""
        if cause in GIVES_WAY:
            return min(asked_ms, self.longest_ms, self.preempted_ms)
        return min(asked_ms, self.longest_ms)


class FleetPolicy(NamedTuple):
    """Limits and times of the fleet; each is a key of `[fleet]`, in milliseconds here."""

    list_lag_ms: int = 120_000
    answer_timeout_ms: int = 60_000
    delete_timeout_ms: int = 600_000
    bad_host_ms: int = 300_000
    orphan_ms: int = 900_000
    exhausted_first_ms: int = 30_000
    exhausted_longest_ms: int = 900_000
    delete_fraction: float = 0.2
    max_price_per_hour: float = 0.0
    interval_ms: int = 5_000
    list_interval_ms: int = 20_000
    dry_run: bool = False


FLEET_POLICY = FleetPolicy()


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and timeouts of the state service. Times in seconds.

    Attributes:
        schedule_tries: failed placements that a session may have; the next one sends its tasks back
            to PENDING.
        prepare_tries: failed preparations likewise.
        start_tries: failed starts likewise.
        max_reschedules: how often a task may go back to PENDING so; then it is UNSCHEDULABLE.
        scheduled_timeout_s: how long a session may be SCHEDULED before that counts as a failure.
        preparing_timeout_s: the same for PREPARING.
        prepared_timeout_s: the same for PREPARED.
        creating_timeout_s: the same for CREATING.
        terminating_timeout_s: how long a session may be TERMINATING.
        order_timeout_s: how long a worker may take to acknowledge an order.
        order_retry_s: from a failed delivery to the next; an order that finds no listener on a host
            with fresh heartbeats is sent again for so long before that.
        heartbeat_interval_s: interval of a worker's heartbeats.
        missed_heartbeats: how many may be missing in a row.
        worker_grace_s: a worker is LOST after that many heartbeats or after this time without one,
            whichever is longer.
        max_building: attempts that may be in BUILDING on one worker at a time. Beyond them each
            user may have an equal share, up to three times as many in all.
        avoid_s: how long a task avoids a worker that failed it the first time; doubles with each
            time.
        avoid_longest_s: the longest such time.
        take_clock: begin with the host's wall clock, not with the times of records as they have
            passed: for one start, after a clock that was wrong has been set. What is between
            counts as time that has passed.
        begin_anew: lead on an empty journal although workers have attempts of jobs that it never
            knew, and have them stopped; for a cluster whose streams are lost and that has no
            backup.
        stop_grace_s: between TERM and KILL of an attempt whose job does not say.
        max_grace_s: the longest such time, whatever a job (`--grace`) or a deployment (`grace_s`)
            asks for.
        max_preempted_grace_s: the longest such time of an attempt that makes room for work of a
            higher band, or within the guarantee of another project.
        expected_grace_production_s: see `expected_grace_batch_s`.
        expected_grace_interactive_s: see `expected_grace_batch_s`.
        expected_grace_batch_s: the longest grace period of an attempt of this band that is counted
            on when it stops: its capacity is expected back then, and work that waits for it is
            planned elsewhere afterwards. It is not shortened by that.
        commit_burst: commits that go at once after a rest, before `commit_spacing_s` holds.
        snapshot_after_s: age of the first change since a snapshot, after which the next is taken.
        max_pending_tasks: pending tasks of a user without a quota; 0: unlimited.
        max_live_bytes: likewise, memory of what jobs that have not ended say: their commands,
            environments, constraints and calls.
        max_stored_today: likewise, bytes that bundles, artifacts, output and results of a day take;
            0: unlimited.
        max_running_cpu_millis: likewise, processors that running tasks hold; beyond it other users
            of the band go first.
        max_running_memory_bytes: likewise, memory.
        max_running_accelerators: likewise, devices.
        max_band: the best band that such a user may ask for; admins, and callers without
            authentication, may ask for any.
        fair_share: whether, in a band and depth, who has had less of a fair share goes first:
            projects by weight, then the users of each. "auto": once two projects have a weight.
        share_half_life_s: how long until what was used counts half for that.
        max_deployments: deployments that may exist at a time.
        max_deployments_of_user: of them those of one user; 0: no limit beside that of all.
        keep_deployments: destroyed deployments that are kept for display.
        keep_jobs: number of finished jobs that are kept, beyond which the oldest of the user who
            has most are deleted; 0: unlimited.
        keep_days: days for which finished jobs are kept; 0: unlimited.
        keep_jobs_bytes: the memory of finished jobs, beyond which the oldest of the user who has
            most are deleted; 0: unlimited.
        keep_keys_days: days for which the idempotency key of a deleted job is kept.
        keep_keys_bytes: memory of such keys, beyond which the oldest of the user who has most are
            deleted.
        keep_bundles_days: days since its last use for which a bundle is kept that no live job
            names.
        keep_bundles_bytes: size of all bundles beyond which such bundles are deleted sooner, those
            of the user who has most first; 0:
            unlimited.
        keep_answers: number of the newest answers kept, by which a repeated request is recognised;
            beyond it the oldest of the user who has most are deleted.
        keep_answers_bytes: memory of those answers.
        keep_audit_days: days for which the audit keeps a command.
        keep_audit_bytes: memory of the audit, beyond which the oldest entries of the user who has
            most are deleted, and those of admins last.
        commit_spacing_s: between commits when very many attempts are open; a few commits go at once
            after a rest.
        plan_wait_s: how long a commit that adds a few tasks to the queue waits for the plan that
            places them, which is then part of it; 0: not at all.
        snapshot_changes: a snapshot is taken after so many changes, more when the last one was
            large.
        events_settle_s: how long power loss may still take back an event that was published; what
            it can be published again from is kept for longer. The server syncs events every 2
            minutes.
        journal_part_bytes: a commit of more bytes is stored in the journal in several messages.
        order_expires_s: a host takes no order to begin an attempt that is older; the attempt is
            then placed elsewhere.
        task_token_s: how long the token of an attempt is valid; it is renewed several times before,
            as long as the attempt is open, and refused as soon as it has ended. 0: attempts have
                none, for gateways that want none.
        undelivered_limit: orders in a row that do not reach a host, after which it is DEGRADED
            until one does.
        forget_workers_after_s: a host that has been LOST for so long, and was not drained, is
            deleted; 0: never.
        read_timeout_s: how long a read may wait for its turn; then it is refused and may be tried
            again.
        read_share: of the time, for reads while commits are written. The rest belongs to the
            commits. A replica that follows keeps to it only while the processors of its machine are
            short.
        poison_window_s: see `poison_workers`.
        poison_workers: number of different workers that may die, alone or with their processes,
            within `poison_window_s` of starting a task; then the task is not tried again. 0: it
            always is.
        suspect_wait_s: how long a task that may have crashed its worker waits for a worker without
            other attempts; then it is placed beside others. Nothing is evicted for it before.
        prometheus: where the queries of scaling rules are asked, as ``http://prometheus:9090``;
            empty: nowhere.
        prometheus_interval_s: how often each query of a scaling rule is asked.
        prometheus_timeout_s: how long its answer may take.
        ping_interval_s: how often a standby pings the leader.
        ping_timeout_s: how long it waits for each answer.
        election_timeout_s: how long pings may have no responder before a standby takes over.
    """

    schedule_tries: NonNegativeInt = 5
    prepare_tries: NonNegativeInt = 5
    start_tries: NonNegativeInt = 5
    max_reschedules: NonNegativeInt = 100
    scheduled_timeout_s: PositiveFloat = 60.0
    preparing_timeout_s: PositiveFloat = 900.0
    prepared_timeout_s: PositiveFloat = 60.0
    creating_timeout_s: PositiveFloat = 600.0
    terminating_timeout_s: PositiveFloat = 120.0
    order_timeout_s: PositiveFloat = 5.0
    order_retry_s: NonNegativeFloat = 1.0
    order_expires_s: PositiveFloat = 10.0
    undelivered_limit: PositiveInt = 3
    task_token_s: NonNegativeFloat = 3600.0
    heartbeat_interval_s: PositiveFloat = 5.0
    missed_heartbeats: NonNegativeInt = 3
    worker_grace_s: NonNegativeFloat = 30.0
    forget_workers_after_s: NonNegativeFloat = 86_400.0
    poison_window_s: NonNegativeFloat = 120.0
    poison_workers: NonNegativeInt = 3
    suspect_wait_s: NonNegativeFloat = 30.0
    max_building: PositiveInt = 8
    avoid_s: NonNegativeFloat = 5.0
    avoid_longest_s: NonNegativeFloat = 300.0
    begin_anew: bool = False
    take_clock: bool = False
    stop_grace_s: NonNegativeFloat = 5.0
    max_grace_s: NonNegativeFloat = 3600.0
    max_preempted_grace_s: NonNegativeFloat = 600.0
    expected_grace_production_s: NonNegativeFloat = 3600.0
    expected_grace_interactive_s: NonNegativeFloat = 600.0
    expected_grace_batch_s: NonNegativeFloat = 300.0
    commit_burst: PositiveInt = 16
    commit_spacing_s: NonNegativeFloat = 0.01
    plan_wait_s: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.005
    max_pending_tasks: NonNegativeInt = 1_000_000
    max_live_bytes: NonNegativeInt = 256 << 20
    max_stored_today: NonNegativeInt = 0
    max_running_cpu_millis: NonNegativeInt = 0
    max_running_memory_bytes: NonNegativeInt = 0
    max_running_accelerators: NonNegativeInt = 0
    max_band: BandName = "interactive"
    fair_share: bool | Literal["auto"] = "auto"
    share_half_life_s: PositiveFloat = 604_800.0
    max_deployments: NonNegativeInt = 1000
    max_deployments_of_user: NonNegativeInt = 200
    keep_deployments: NonNegativeInt = 100
    keep_jobs: NonNegativeInt = 200_000
    keep_days: NonNegativeFloat = 30.0
    keep_jobs_bytes: NonNegativeInt = 1 << 30
    keep_keys_days: NonNegativeFloat = 7.0
    keep_keys_bytes: NonNegativeInt = 64 << 20
    keep_bundles_days: NonNegativeFloat = 7.0
    keep_bundles_bytes: NonNegativeInt = 16 << 30
    keep_answers: NonNegativeInt = 20_000
    keep_answers_bytes: NonNegativeInt = 64 << 20
    keep_audit_days: NonNegativeFloat = 90.0
    keep_audit_bytes: NonNegativeInt = 16 << 20
    snapshot_changes: PositiveInt = 200_000
    snapshot_after_s: NonNegativeFloat = 600.0
    events_settle_s: NonNegativeFloat = 150.0
    journal_part_bytes: PositiveInt = PART_BYTES
    read_timeout_s: PositiveFloat = 2.0
    read_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.2
    prometheus: str = ""
    prometheus_interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=30)] = 5.0
    prometheus_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=30)] = 3.0
    ping_interval_s: PositiveFloat = 0.05
    ping_timeout_s: PositiveFloat = 0.25
    election_timeout_s: PositiveFloat = 0.3

    @property
    def timeouts(self) -> StatusTimeout:
        return StatusTimeout(
            scheduled_ms=int(self.scheduled_timeout_s * 1000),
            preparing_ms=int(self.preparing_timeout_s * 1000),
            prepared_ms=int(self.prepared_timeout_s * 1000),
            creating_ms=int(self.creating_timeout_s * 1000),
            terminating_ms=int(self.terminating_timeout_s * 1000),
        )

    @property
    def grace_limits(self) -> GraceLimits:
        seconds = (self.stop_grace_s, self.max_grace_s, self.max_preempted_grace_s)
        return GraceLimits(*(int(one * 1000) for one in seconds))

    @property
    def default_quota(self) -> Quota:
        """The limits of a user without a quota."""
        return Quota(
            "",
            max_running_cpu=self.max_running_cpu_millis,
            max_running_memory=self.max_running_memory_bytes,
            max_running_accelerators=self.max_running_accelerators,
            max_pending_tasks=self.max_pending_tasks,
            max_band=PriorityBand[self.max_band.upper()].value,
            max_live_bytes=self.max_live_bytes,
            max_stored_today=self.max_stored_today,
        )

    @property
    def share_half_life_ms(self) -> int:
        return max(1, int(self.share_half_life_s * 1000))

    def expected_grace_ms(self, band: PriorityBand) -> int:
        """The longest grace period that is counted on when an attempt of a band stops."""
        batch_s = self.expected_grace_batch_s
        interactive_s = self.expected_grace_interactive_s
        seconds = {PriorityBand.BATCH: batch_s, PriorityBand.INTERACTIVE: interactive_s}
        return int(seconds.get(band, self.expected_grace_production_s) * 1000)

    @property
    def order_expires_ms(self) -> int:
        return int(self.order_expires_s * 1000)

    @property
    def task_token_ms(self) -> int:
        return int(self.task_token_s * 1000)

    @property
    def keep_ms(self) -> int:
        return int(self.keep_days * 86_400_000)

    @property
    def keep_bundles_ms(self) -> int:
        return int(self.keep_bundles_days * 86_400_000)

    @property
    def keep_keys_ms(self) -> int:
        return int(self.keep_keys_days * 86_400_000)

    @property
    def keep_audit_ms(self) -> int:
        return int(self.keep_audit_days * 86_400_000)

    @property
    def lost_after_ms(self) -> int:
        """A worker without a message for longer than this, by message time, is LOST; ms."""
        return int(
            max(self.missed_heartbeats * self.heartbeat_interval_s, self.worker_grace_s) * 1000
        )

    @property
    def forget_workers_after_ms(self) -> int:
        return int(self.forget_workers_after_s * 1000)

    @property
    def poison_window_ms(self) -> int:
        return int(self.poison_window_s * 1000)

    @property
    def suspect_wait_ms(self) -> int:
        return int(self.suspect_wait_s * 1000)

    @property
    def heartbeat_interval_ms(self) -> int:
        return int(self.heartbeat_interval_s * 1000)

    @property
    def stall_ms(self) -> int:
        """After a pause of the service itself of longer than this, the silence of workers is
        disregarded; ms.

        Longer than a leader waits without an input, or nobody would be LOST where heartbeats are
        more frequent.
        """
        return max(self.heartbeat_interval_ms, _LEAST_STALL_MS)

    def avoid_ms(self, times: int) -> int:
        """How long a task avoids a worker that failed it for the ``times``-th time, ms; doubles up
        to a limit.
        """
        return int(min(self.avoid_s * 2 ** min(times, 16), self.avoid_longest_s) * 1000)

    def tries_of(self, handler: str) -> int:
        """How many failures of one handler a session may have; None for a handler that reports
        none.
        """
        return {
            SCHEDULE.name: self.schedule_tries,
            PREPARE.name: self.prepare_tries,
            START.name: self.start_tries,
        }.get(handler, 0)

    def timeout_of(self, status: SessionStatus) -> int | None:
        return _timeouts(self)[status]


@cache
def _timeouts(policy: Policy) -> dict[SessionStatus, int | None]:
    """The timeouts, cached: they are read for every status in every round."""
    return {status: policy.timeouts.of(status) for status in SessionStatus}
