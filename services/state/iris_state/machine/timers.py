"""Turns deadlines that have passed into timers, each judged and set aside by itself. Pure.

Sessions whose status has timed out, and hosts without a heartbeat, are one timer together, because
their consequences are computed once. When that raises they are judged again one by one.
Source: docs/design/semantics.md#rules-and-judgement, docs/design/semantics.md#tasks-and-attempts,
docs/design/semantics.md#jobs, docs/design/semantics.md#sessions;
docs/adr/0016-what-raises-is-set-aside.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import TypeVar

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import OCCUPIED
from iris_state.decide import coordinator, gates, poison
from iris_state.deployments.reconciler import DEPLOYMENT
from iris_state.inputs import timeouts
from iris_state.inputs.reports import liveness
from iris_state.machine.round import Round
from iris_state.records.changes import Avoided, Change
from iris_state.records.entities import Key
from iris_state.records.handlers import SessionId
from iris_state.records.indexes.timer_queue import TimerQueue
from iris_state.records.inputs import Timer, TimerKey

K = TypeVar("K", bound=Hashable)

FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 3_600_000
GATES_AT_ONCE = 500
"""Gates judged in one round at most."""
CHANGES_AT_ONCE = 2_000
"""No more gates are judged in a round when those that were have changed so much."""
LOOK_MS = 500
"""How often other timers are checked while the one that is due first is set aside, or its host is
silent, ms.
"""


class Timers:
    """The timers of one machine.

    Attributes:
        aside: timers that raised: until when each is paused, and the length of the pause, ms. A
            pause of 0: it was one of several that raised together, and is judged separately now.
    """

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.aside: dict[TimerKey, tuple[int, int]] = {}
        self._unheard = False

    def expired(self, silent_from_ms: int) -> Iterator[Timer]:
        """Every timer that is due, in order.

        Each must be judged or set aside before the next one is requested. ``silent_from_ms``: from
        when on the silence of hosts counts.
        """
        round_ = self._round
        ledger = self._round.ledger
        policy = self._round.policy
        now_ms = round_.now_ms
        retention = round_.retention
        yield from self._queue("limit", ledger.timers, self._pass_limit)
        yield from self._queue("order", round_.deliveries.again, self._order_again)
        yield from self._queue("stop", round_.stop_again, self._stop_again)
        for key in poison.survivors(ledger, policy, now_ms):
            yield from self._change("survived", key, Avoided(*key, OCCUPIED, 0))
        self._unheard = False
        for rule, late in list(coordinator.overdue(ledger, policy, now_ms)):
            known = [one for one in late if coordinator.answered(ledger, policy, rule, one, now_ms)]
            self._unheard |= len(known) < len(late)
            yield from self._timers(rule.name, known, partial(round_.show, rule))
        for forgotten in liveness.long_lost(ledger, policy.forget_workers_after_ms, now_ms):
            yield from self._change("forget", forgotten.worker, forgotten)
        silent = liveness.silent(ledger, policy.lost_after_ms, silent_from_ms, now_ms)
        yield from self._timers("silent", silent, self._lose)
        yield from self._queue(DEPLOYMENT, round_.deployments.due, round_.reconcile)
        yield from self._gates()
        due_ms = round_.fleet.next_due()
        if due_ms is not None and due_ms <= now_ms:
            yield from self._timers("fleet", [""], lambda _: round_.decide_fleet())
        for pruned in retention.forgettable(
            policy.keep_jobs, policy.keep_ms, now_ms, policy.keep_jobs_bytes
        ):
            yield from self._change("prune", pruned.job, pruned)
        for gone in retention.forgettable_deployments(policy.keep_deployments):
            yield from self._change("forget_deployment", gone.deployment, gone)
        dropped = retention.droppable(policy, now_ms)
        if dropped is not None:
            yield from self._change("drop", "", dropped)

    def set_aside(self, timer: Timer) -> None:
        """A timer raised: it is judged again after a pause that doubles; several together are
        judged one by one, soon.
        """
        now_ms = self._round.now_ms
        self.aside = {
            key: held for key, held in self.aside.items() if now_ms - held[0] < LONGEST_PAUSE_MS
        }
        for key in timer.keys:
            pause_ms = 0
            if len(timer.keys) == 1:
                _, before_ms = self.aside.get(key, (0, 0))
                pause_ms = min(max(2 * before_ms, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)
            self.aside[key] = (now_ms + pause_ms, pause_ms)

    def next_due(self) -> int | None:
        """When the next timer is due if nothing arrives, ms; None when there is none."""
        round_ = self._round
        ledger = self._round.ledger
        policy = self._round.policy
        dues = [
            ledger.timers.next_due(),
            round_.deliveries.again.next_due(),
            round_.stop_again.next_due(),
        ]
        dues += [
            round_.fleet.next_due(),
            round_.deployments.due.next_due(),
            poison.next_survivor(ledger, policy),
        ]
        for status, line in ledger.timeouts.items():
            if line and (timeout_ms := policy.timeout_of(status)) is not None:
                dues.append(line.next_due(timeout_ms))
        if ledger.gates.ripe or ledger.gates.later:
            dues.append(round_.now_ms)
        if policy.forget_workers_after_ms:
            dues.append(ledger.lost.next_due(policy.forget_workers_after_ms))
        first = min((due for due in dues if due is not None), default=None)
        waits = (self.aside or self._unheard) and first is not None and first <= round_.now_ms
        return round_.now_ms + LOOK_MS if waits else first

    # ── one kind each ─────────────────────────────────────────────────────────────────────────────

    def _timers(
        self, what: str, keys: Iterable[K], judge: Callable[[list[K]], None]
    ) -> Iterator[Timer]:
        """One timer for those of ``keys`` that have not raised; those that have are judged
        separately, after their pause.
        """
        together: list[K] = []
        alone: list[tuple[int, K]] = []
        for key in keys:
            until_ms, pause_ms = self.aside.get((what, key), (0, 0))
            if not until_ms:
                together.append(key)
            elif until_ms <= self._round.now_ms:
                alone.append((pause_ms, key))
        alone.sort(
            key=itemgetter(0)
        )  # the suspects come last: one that tears the ledger ends the round
        for batch in [together] * bool(together) + [[key] for _, key in alone]:
            yield Timer(tuple((what, key) for key in batch), partial(judge, batch))

    def _queue(
        self, what: str, timers: TimerQueue[K], judge: Callable[[K], None]
    ) -> Iterator[Timer]:
        """Remove each key once it was judged, unless that set it again."""
        for key in timers.due(self._round.now_ms):
            yield from self._timers(what, [key], lambda keys: judge(*keys))
            is_aside = self.aside.get((what, key), (0, 0))[0] > self._round.now_ms
            if not is_aside and timers.is_due(key, self._round.now_ms):
                timers.clear(key)

    def _gates(self) -> Iterator[Timer]:
        """The gates that may open now, and those that become ripe by that; the rest is due in the
        next round.
        """
        round_ = self._round
        index = self._round.ledger.gates
        left = GATES_AT_ONCE
        begun = round_.begun
        held = self._held_gates()
        while left > 0:
            batch = [key for key in index.next_ripe(left + len(held)) if key not in held]
            if not batch:
                break
            for key in batch:
                if left <= 0 or round_.begun - begun > CHANGES_AT_ONCE:
                    return
                left -= 1
                yield from self._timers("gate", [key], self._judge_gate)
                held = self._held_gates()
                if key not in held:
                    index.ripe.pop(key, None)
                    self.aside.pop(("gate", key), None)

    def _held_gates(self) -> frozenset[Hashable]:
        """The gates whose judgement raised, and that are judged again after their pause."""
        now_ms = self._round.now_ms
        return frozenset(
            key
            for (what, key), (until_ms, _) in self.aside.items()
            if what == "gate" and until_ms > now_ms
        )

    def _judge_gate(self, keys: list[Key]) -> None:
        for number, index in keys:
            self._round.take(gates.judge(self._round.ledger, number, index, self._round.now_ms))

    def _change(self, what: str, key: Hashable, change: Change) -> Iterator[Timer]:
        return self._timers(what, [key], lambda _: self._round.take([change]))

    def _pass_limit(self, key: tuple[str, int, int]) -> None:
        self._round.take(timeouts.on_limit(self._round.ledger, *key, self._round.now_ms))

    def _order_again(self, session: SessionId) -> None:
        self._round.deliveries.order_again(self._round.orders, session)

    def _stop_again(self, key: tuple[str, AttemptRef]) -> None:
        worker, ref = key
        attempt = self._round.ledger.attempt((ref.job, ref.index, ref.attempt))
        if attempt is not None and attempt.is_open:
            self._round.orders.stop(worker, ref, attempt)

    def _lose(self, workers: list[str]) -> None:
        policy = self._round.policy
        round_ = self._round
        round_.take(liveness.lose_silent(round_.ledger, policy, workers, round_.now_ms))
