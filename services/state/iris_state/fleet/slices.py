"""The handlers of slices: the claims about one slice and the changes that follow.

Reads records, facts and sightings only. Source: docs/design/fleet.md#statuses-of-a-slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from iris_core.states import Outcome, SchedulingResult, SliceCause, SliceStatus, WorkerState
from iris_core.tables import slice as table
from iris_core.tables.slice import SliceRule
from iris_state.decide.judging import judgement
from iris_state.fleet.facts import HostFacts, HostTable
from iris_state.policy import FleetPolicy
from iris_state.records.fleet.records import Fleet, Slice
from iris_state.records.fleet.sightings import Sightings
from iris_state.records.fleet_changes import SliceCleared, SliceMoved

S = SliceStatus
C = SliceCause

TAKES_BACK = frozenset({C.IDLE, C.OVER_MAX})
"""Causes of draining from which a slice returns when work for it has come."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What the decisions of one round read."""

    fleet: Fleet
    hosts: HostTable
    sightings: Sightings
    policy: FleetPolicy
    now_ms: int

    def in_status_ms(self, one: Slice) -> int:
        """How long a slice has been in its status before the eyes of this leader: what it was not
        told before it led, after a restore for example, is no silence of others.
        """
        return self.now_ms - max(one.since_ms, self.sightings.began_ms)

    def hosts_of(self, one: Slice) -> list[HostFacts | None]:
        """The hosts of a slice; None for one that has not registered, or before it was asked
        for.
        """
        return [self.hosts.get(name) for name in one.hosts]

    def has_work(self, one: Slice) -> bool:
        return any(host is not None and host.has_work for host in self.hosts_of(one))

    def runs(self, one: Slice) -> bool:
        """Whether attempts hold something on a slice, on hosts that may still run."""
        return any(
            host is not None and host.open > 0 and not host.is_lost for host in self.hosts_of(one)
        )

    def idle_since_ms(self, one: Slice) -> int:
        """Since when nothing has run on a ready slice; 0: something does."""
        if one.status is not S.READY or self.has_work(one):
            return 0
        pool = self.fleet.pools.get(one.pool)
        ends = [host.last_end_ms for host in self.hosts_of(one) if host is not None]
        return max(one.ready_ms, pool.set_ms if pool else 0, *ends)


class Loss(NamedTuple):
    """A reason to give up a slice; ``is_judged``: this service concluded it, the provider did not
    report it.
    """

    cause: SliceCause
    detail: str
    is_judged: bool = False


def steps(scene: Scene, one: Slice) -> Iterator[SliceMoved | SliceCleared]:
    """One round of the handler for the status of a slice, but for giving up ready ones."""
    handler = _HANDLERS.get(one.status)
    if handler is not None:
        yield from handler(scene, one)
    elif one.is_over and not one.cleared and scene.sightings.is_gone(one):
        yield SliceCleared(one.number)


def judged(
    one: Slice,
    rule: SliceRule,
    outcome: Outcome,
    cause: SliceCause,
    *,
    detail: str = "",
    in_status_ms: int = 0,
    timeout_ms: int | None = None,
    deadline_ms: int = 0,
    asked_ms: int = 0,
) -> Iterator[SliceMoved]:
    """The change that a claim causes; none when it changes neither the status nor what is known."""
    found = judgement(
        rule, one.status, outcome, detail, in_status_ms=in_status_ms, timeout_ms=timeout_ms
    )
    if found is None:
        return
    moves = found.target is not None
    overdue = not moves and (one.overdue or found.result is SchedulingResult.EXPIRED)
    if moves or found.reason != one.detail or overdue != one.overdue:
        yield SliceMoved(
            number=one.number,
            status=found.target or one.status,
            handler=rule.name,
            cause=cause,
            result=found.result,
            detail=found.reason,
            deadline_ms=deadline_ms,
            asked_ms=asked_ms,
            overdue=overdue,
        )


def loss(scene: Scene, one: Slice) -> Loss | None:
    """Why a slice that was ready is lost; None: it is not."""
    listed = scene.sightings.listed(one)
    if listed is not None and listed.status == "preempted":
        return Loss(C.PREEMPTED, listed.detail or "the provider has taken it away")
    if listed is not None and listed.status in ("failed", "deleting"):
        return Loss(C.GONE, listed.detail or f"the provider lists it as {listed.status}")
    hosts = scene.hosts_of(one)
    if scene.sightings.is_gone(one):
        # A list that lacks what runs may be wrong; one that lacks what is lost is not doubted.
        seems_alive = any(host is not None and not host.is_lost for host in hosts)
        return Loss(C.GONE, "the provider does not list it", is_judged=seems_alive)
    for name, host in zip(one.hosts, hosts, strict=True):
        if host is None:
            if scene.in_status_ms(one) > scene.policy.answer_timeout_ms:
                return Loss(C.HOST_LOST, f"host {name} has not registered", is_judged=True)
        elif host.is_lost:
            return Loss(C.HOST_LOST, f"host {name} is lost", is_judged=True)
        elif _is_bad(scene, host):
            return Loss(C.HOST_DEGRADED, f"host {name} is degraded", is_judged=True)
    return None


def _is_bad(scene: Scene, host: HostFacts) -> bool:
    degraded_ms = scene.now_ms - host.since_ms
    return host.state is WorkerState.DEGRADED and degraded_ms > scene.policy.bad_host_ms


# ── the handlers, by the status they answer for ───────────────────────────────────────────────────


def _requested(scene: Scene, one: Slice) -> Iterator[SliceMoved]:
    """An answer that was lost is found in the list; without either the request fails."""
    if scene.sightings.listed(one) is not None:
        yield from judged(
            one,
            table.REQUEST,
            Outcome.SUCCESS,
            C.ACCEPTED,
            detail="the provider lists it",
            asked_ms=scene.now_ms,
        )
        return
    ordered_ms = scene.sightings.ordered_ms(one)
    failure = scene.sightings.failure(one)
    if not ordered_ms:
        cause, detail = _not_ordered(scene, one)
    elif failure is not None:
        cause, detail = C.CREATE_FAILED, failure
    else:
        cause, detail = C.NO_ANSWER, "the provider did not answer"
    yield from judged(
        one,
        table.REQUEST,
        Outcome.SKIPPED,
        cause,
        detail=detail,
        in_status_ms=scene.now_ms - ordered_ms if ordered_ms else scene.in_status_ms(one),
        timeout_ms=scene.policy.answer_timeout_ms,
    )


def _not_ordered(scene: Scene, one: Slice) -> tuple[SliceCause, str]:
    """Why nobody was asked for a slice that was requested."""
    pool = scene.fleet.pools.get(one.pool)
    if scene.sightings.obstacle or pool is None:
        return C.NO_ANSWER, "no order was given: no provisioner was there"
    return C.OVER_MAX, f"no order was given: max {pool.spec.max} left no room for it"


def _creating(scene: Scene, one: Slice) -> Iterator[SliceMoved]:
    hosts = scene.hosts_of(one)
    if all(_is_ready(host) for host in hosts):
        yield from judged(one, table.BOOT, Outcome.SUCCESS, C.REGISTERED)
        return
    listed = scene.sightings.listed(one)
    if listed is not None and listed.status in ("failed", "preempted", "deleting"):
        cause = C.PREEMPTED if listed.status == "preempted" else C.BOOT_FAILED
        detail = listed.detail or f"the provider lists it as {listed.status}"
        yield from judged(one, table.BOOT, Outcome.FAILURE, cause, detail=detail)
    elif scene.sightings.is_gone(one):
        detail = "the provider does not list it"
        yield from judged(one, table.BOOT, Outcome.FAILURE, C.GONE, detail=detail)
    else:
        yield from judged(
            one,
            table.BOOT,
            Outcome.SKIPPED,
            C.BOOT_TIMEOUT,
            detail=_missing(one, hosts),
            in_status_ms=scene.in_status_ms(one),
            timeout_ms=round(one.spec.boot_timeout_s * 1000),
        )


def _is_ready(host: HostFacts | None) -> bool:
    return host is not None and host.state is WorkerState.HEALTHY and not host.differs


def _missing(one: Slice, hosts: list[HostFacts | None]) -> str:
    """Which of its hosts is not as promised, and how."""
    for name, host in zip(one.hosts, hosts, strict=True):
        if host is None:
            return f"host {name} has not registered"
        if host.differs:
            return f"host {name} has {host.differs[0]}"
        if not _is_ready(host):
            return f"host {name} is {host.state}"
    return ""


def _draining(scene: Scene, one: Slice) -> Iterator[SliceMoved]:
    lost = loss(scene, one)
    if lost is not None and lost.cause is not C.HOST_DEGRADED:
        yield from judged(one, table.LOSE, Outcome.SUCCESS, lost.cause, detail=lost.detail)
    elif not scene.runs(one):
        yield from judged(one, table.DRAIN, Outcome.SUCCESS, C.DRAINED)
    elif one.deadline_ms:
        yield from judged(
            one,
            table.DRAIN,
            Outcome.SKIPPED,
            C.DEADLINE,
            detail="work was running at its deadline",
            in_status_ms=scene.now_ms - one.deadline_ms,
            timeout_ms=0,
        )


def _deleting(scene: Scene, one: Slice) -> Iterator[SliceMoved | SliceCleared]:
    """The list that ends it shows that its slot is free, too."""
    if scene.sightings.is_gone(one):
        yield from judged(one, table.DELETE, Outcome.SUCCESS, C.NOT_LISTED)
        yield SliceCleared(one.number)
    elif not one.overdue:
        yield from judged(
            one,
            table.DELETE,
            Outcome.SKIPPED,
            C.DELETE_OVERDUE,
            in_status_ms=scene.in_status_ms(one),
            timeout_ms=scene.policy.delete_timeout_ms,
        )


_HANDLERS: dict[
    SliceStatus,
    Callable[[Scene, Slice], Iterator[SliceMoved] | Iterator[SliceMoved | SliceCleared]],
] = {
    S.REQUESTED: _requested,
    S.CREATING: _creating,
    S.DRAINING: _draining,
    S.DELETING: _deleting,
}
