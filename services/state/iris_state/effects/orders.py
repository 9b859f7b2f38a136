"""Orders to workers after a commit: one order per worker, with the templates of its jobs.

Collects; decides nothing. Orders are idempotent, so sending one again is always safe. Source:
docs/ARCHITECTURE.md#storage; docs/design/semantics.md#sessions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from iris_core import codec
from iris_core.access import task_tokens
from iris_core.access.task_tokens import SigningKey
from iris_core.limits import CHUNK_BYTES
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Chain, Gang, Order, Stop, TaskGrant, TaskTemplate
from iris_core.placement.constraints import DEVICE_VARIANT
from iris_core.spec.jobs import Environment
from iris_core.states import Cause, KernelStatus, NoticeReason, SessionStatus, WorkerState
from iris_state.records import changes as c
from iris_state.records.entities import Attempt, AttemptKey, Job, ref_of
from iris_state.records.hosts import Ordered
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import complete

_STOPPED_AS = {Cause.RETIRED: Cause.CANCELLED, Cause.RECLAIMED: Cause.PREEMPTED}
"""What a worker is told in place of a cause."""


@dataclass(slots=True)
class _Draft:
    """One worker's order under construction; dicts keep the order and drop duplicates."""

    run: dict[AttemptRef, None] = field(default_factory=dict)
    prepare: dict[AttemptRef, None] = field(default_factory=dict)
    start: dict[AttemptRef, None] = field(default_factory=dict)
    stop: dict[AttemptRef, Cause] = field(default_factory=dict)
    drained: dict[AttemptRef, None] = field(default_factory=dict)
    incarnation: str = ""
    renew: bool = False
    timeouts: dict[int, int] = field(default_factory=dict)
    muted: tuple[int, ...] | None = None


class OrderBook:
    """The orders of one commit.

    Attributes:
        keys: those that sign the tokens of attempts; none while they are not known.
    """

    def __init__(self, ledger: Ledger, expires_ms: int, token_life_ms: int) -> None:
        self.keys: Sequence[SigningKey] = ()
        self._ledger = ledger
        self._expires_ms = expires_ms
        self._token_life_ms = token_life_ms
        self._drafts: dict[str, _Draft] = {}
        self._new: set[AttemptKey] = set()
        self._over: frozenset[str] = frozenset()
        self._over_ms = 0

    def _assigned(self, change: c.Assigned) -> None:
        self._new.add((change.job, change.index, change.attempt))
        self.place(AttemptRef(change.job, change.index, change.attempt))

    def _moved(self, change: c.Moved) -> None:
        if change.attempt >= 0 and (self._drafts or not change.closed):
            self._left(AttemptRef(change.job, change.index, change.attempt), change.closed)

    def _stop_ordered(self, change: c.StopOrdered) -> None:
        self._left(AttemptRef(change.job, change.index, change.attempt), closed=False)

    def _grace_ended(self, change: c.GraceEnded) -> None:
        """Kill what is stopped already; what is not will be."""
        attempt = self._ledger.jobs[change.job].task(change.index).attempts[change.attempt]
        if attempt.is_stopping:
            self._left(AttemptRef(change.job, change.index, change.attempt), closed=False)

    def _worker_moved(self, change: c.WorkerMoved) -> None:
        if change.state is WorkerState.DRAINING:
            self.tell_drained(change.worker)

    def _session_moved(self, change: c.SessionMoved) -> None:
        if change.status is SessionStatus.PREPARED:
            self.start_all(self._ledger.jobs[change.job])

    def _amended(self, change: c.JobAmended) -> None:
        """Tell the hosts of a job's attempts its timeout, if it was ever changed."""
        job = self._ledger.jobs[change.job]
        for _, task in job.numbered() if job.retimed else ():
            if task.current is not None:
                self._tell_timeout(task.current.worker, job)

    REACTIONS = complete(
        {
            c.Assigned: _assigned,
            c.StopOrdered: _stop_ordered,
            c.GraceEnded: _grace_ended,
            c.Moved: _moved,
            c.SessionMoved: _session_moved,
            c.WorkerMoved: _worker_moved,
            c.JobAmended: _amended,
        },
        nothing=(
            *(c.GatesOpened, c.Requeued, c.Noticed, c.JobGrown, c.JobClosed),
            *(c.QueueHeld, c.QueueReleased),
            *(
                c.JobAdmitted,
                c.Staged,
                c.Closed,
                c.JobMoved,
                c.JobPruned,
                c.Judged,
                c.Nominated,
                c.Avoided,
            ),
            *(c.WorkerRegistered, c.WorkerForgotten, c.QuotaSet, c.GroupsNoted),
            *(c.Answered, c.Dropped, c.Evicted, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
            *c.FLEET_KINDS,
            *c.PROJECT_KINDS,
        ),
    )

    def place(self, ref: AttemptRef) -> None:
        """Order an attempt: a session of one is run, a gang's member only prepared."""
        job = self._ledger.jobs[ref.job]
        draft = self._draft(job.task(ref.index).attempts[ref.attempt].worker)
        (draft.prepare if job.is_gang else draft.run)[ref] = None

    def tell_drained(self, worker: str) -> None:
        """Give notice of a drain to what runs on a host and has not had it, a gang's members all;
        they go on.
        """
        for number, index, _ in self._ledger.presence[worker].open:
            job = self._ledger.jobs[number]
            if job.spec.notice is None:
                continue
            for member in job.indexes if job.is_gang else (index,):
                attempt = job.task(member).current
                if attempt is not None and _lacks_notice(attempt):
                    self._draft(attempt.worker).drained[
                        AttemptRef(number, member, attempt.number)
                    ] = None

    def start_all(self, job: Job) -> None:
        """Start every member of a prepared gang."""
        for index, task in job.numbered():
            if task.current is not None:
                self.start(AttemptRef(job.number, index, task.current.number))

    def start(self, ref: AttemptRef) -> None:
        attempt = self._ledger.jobs[ref.job].task(ref.index).attempts[ref.attempt]
        self._draft(attempt.worker).start[ref] = None

    def _left(self, ref: AttemptRef, closed: bool) -> None:
        """A task has left an attempt: drop its orders, and stop it unless it has ended."""
        attempt = self._ledger.jobs[ref.job].task(ref.index).attempts[ref.attempt]
        if not closed:
            self.stop(attempt.worker, ref, attempt)
        elif attempt.worker in self._drafts:
            _withdraw(self._drafts[attempt.worker], ref)

    def stop(self, worker: str, ref: AttemptRef, attempt: Attempt | None) -> None:
        """End an attempt on a host, also one that the ledger does not know."""
        draft = self._draft(worker)
        _withdraw(draft, ref)
        ending = (
            attempt.ending.cause
            if attempt is not None and attempt.ending is not None
            else Cause.CANCELLED
        )
        why = (attempt.cause if attempt is not None else None) or ending
        # workers stop alike for both words of a pair, and older ones know the second only
        draft.stop[ref] = _STOPPED_AS.get(why, why)

    def register(self, worker: str, incarnation: str) -> None:
        """Order an unknown host to register."""
        self._draft(worker).incarnation = incarnation

    def again(self) -> None:
        """Repeat every order that a new leader cannot know to have arrived."""
        for presence in self._ledger.presence.values():
            for key, attempt in presence.open.items():
                ref = AttemptRef(*key)
                if attempt.status is KernelStatus.SCHEDULED:
                    self.place(ref)
                elif attempt.is_stopping:
                    self.stop(attempt.worker, ref, attempt)
        for number in self._ledger.kernels:
            job = self._ledger.jobs[number]
            if job.session is not None and job.session.status in (
                SessionStatus.PREPARED,
                SessionStatus.CREATING,
            ):
                self.start_all(job)

    def probe(self, worker: str) -> None:
        """An empty order, which shows whether orders reach a host, and its clock."""
        self._draft(worker)

    def renew_tokens(self, worker: str, now_ms: int) -> None:
        """Renew the tokens of everything that runs on a host, in good time before they expire;
        several times, as an order may be lost.
        """
        presence = self._ledger.presence[worker]
        if self.keys and presence.open and now_ms >= presence.renew_ms:
            presence.renew_ms = now_ms + self._token_life_ms // RENEWALS
            self._draft(worker).renew = True

    def repeat_timeouts(self, worker: str, known: Mapping[int, int]) -> None:
        """Tell a host the timeouts of jobs that were changed and that it does not know; ``known``:
        by job, ms.
        """
        if self._ledger.retimed:
            there = {number for number, _, _ in self._ledger.presence[worker].open}
            for number in sorted(self._ledger.retimed & there):
                if known.get(number) != (self._ledger.jobs[number].spec.timeout_ms or 0):
                    self._tell_timeout(worker, self._ledger.jobs[number])

    def mute(self, worker: str, known: Collection[int], now_ms: int) -> None:
        """Tell a host of which jobs nothing more is stored, where it does not know; ``known``: those
        of which it does.
        """
        if now_ms - self._over_ms >= OVER_MS:
            self._over = self._ledger.over_stored()
            self._over_ms = now_ms
        if self._over or known:
            jobs = self._ledger.jobs
            there = {number for number, _, _ in self._ledger.presence[worker].open}
            wanted = {number for number in there if jobs[number].user in self._over}
            if wanted != set(known):
                self._draft(worker).muted = tuple(sorted(wanted))

    def _tell_timeout(self, worker: str, job: Job) -> None:
        self._draft(worker).timeouts[job.number] = job.spec.timeout_ms or 0

    def take(self, epoch: int, now_ms: int) -> dict[str, Order]:
        """Each worker's order; then begin the next commit's."""
        drafts = self._drafts
        self._drafts = {}
        orders = {
            worker: self._write(worker, draft, epoch, now_ms) for worker, draft in drafts.items()
        }
        self._new.clear()
        return orders

    def _expiry(self, worker: str, draft: _Draft, now_ms: int) -> int:
        """When an order expires, by the host's monotonic clock; 0 when it starts nothing or the
        clock is unknown.

        All orders to start one attempt expire at the same time, after which none of them can be
        accepted. An expired order is not repeated, and nothing is started on a host whose clock
        this leader does not know.
        """
        presence = self._ledger.presence.get(worker)
        if presence is None or not (draft.run or draft.prepare):
            return 0
        if not presence.heard:
            draft.run.clear()
            draft.prepare.clear()
            return 0
        clock_ms = presence.clock_ms
        fresh_ms = 0 if clock_ms is None else now_ms + clock_ms + self._expires_ms
        earliest_ms = fresh_ms
        first = Ordered(fresh_ms, once=True)
        later = Ordered(fresh_ms, inherited=True)
        for ref in (*draft.run, *draft.prepare):
            key = (ref.job, ref.index, ref.attempt)
            known = presence.orders.get(key)
            if known is None:
                presence.orders[key] = first if key in self._new else later
            elif clock_ms is None or not known.expires_ms:
                presence.orders[key] = Ordered(0)
            elif now_ms + clock_ms > known.expires_ms:
                _withdraw(draft, ref)
            else:
                presence.orders[key] = known._replace(once=False)
                earliest_ms = min(earliest_ms, known.expires_ms)
        return earliest_ms

    def _draft(self, worker: str) -> _Draft:
        draft = self._drafts.get(worker)
        if draft is None:
            draft = self._drafts[worker] = _Draft()
        return draft

    def _write(self, worker: str, draft: _Draft, epoch: int, now_ms: int) -> Order:
        expires_ms = self._expiry(worker, draft, now_ms)
        key = task_tokens.signing(self.keys, now_ms)
        known = self._ledger.workers.get(worker)
        refs = [ref for part in (draft.run, draft.prepare, draft.start) for ref in part]
        jobs = {ref.job: None for ref in refs}
        gangs = [self._ledger.jobs[number] for number in jobs if self._ledger.jobs[number].is_gang]
        return Order(
            incarnation=draft.incarnation or (known.incarnation if known is not None else ""),
            epoch=epoch,
            templates=tuple(
                self._template(number, worker, self._grant(key, number, worker, now_ms), refs)
                for number in jobs
            ),
            run=tuple(draft.run),
            prepare=tuple(draft.prepare),
            start=tuple(draft.start),
            stop=tuple(self._stop(ref, why) for ref, why in draft.stop.items()),
            gangs=tuple(self._gang(job, worker) for job in gangs),
            register=bool(draft.incarnation),
            expires_ms=expires_ms,
            renewals=self._renewals(key, worker, now_ms) if draft.renew else (),
            timeouts=draft.timeouts,
            chains=self._chains(worker, draft),
            drained=tuple(draft.drained),
            muted=draft.muted,
        )

    def _chains(self, worker: str, draft: _Draft) -> tuple[Chain, ...]:
        """Which of the attempts that are ordered wait behind others, and behind which."""
        presence = self._ledger.presence.get(worker)
        if presence is None or not presence.chains.members:
            return ()
        members: dict[AttemptKey, list[AttemptRef]] = {}
        for ref in draft.run:
            behind = self._ledger.jobs[ref.job].task(ref.index).attempts[ref.attempt].chain
            if behind is not None:
                members.setdefault((ref.job, *behind), []).append(ref)
        found = []
        for name, refs in members.items():
            opened = map(ref_of, presence.chains.of(name, None))
            found.append(Chain(tuple(ref for ref in opened if ref not in refs), tuple(refs)))
        return tuple(found)

    def _gang(self, job: Job, worker: str) -> Gang:
        """Where the members of a gang are, and when their time is over, for a host."""
        slices = job.spec.coscheduling.slices if job.spec.coscheduling is not None else 1
        return Gang(
            job.number,
            self._hosts(job),
            len(job.task(0).attempts) - 1,
            slices,
            deadline_ms=self._deadline(job, worker),
        )

    def _deadline(self, job: Job, worker: str) -> int:
        """When the time of a gang that was told to start is over, by the monotonic clock of a host;
        0: unknown.
        """
        clock_ms = self._ledger.presence[worker].clock_ms
        if (
            job.spec.timeout_ms is None
            or clock_ms is None
            or job.session is None
            or not job.session.begun_ms
        ):
            return 0
        return job.session.begun_ms + job.spec.timeout_ms + clock_ms

    def _renewals(self, key: SigningKey | None, worker: str, now_ms: int) -> tuple[TaskGrant, ...]:
        """A grant for each job with an open attempt on a host."""
        jobs = dict.fromkeys(job for job, _, _ in self._ledger.presence[worker].open)
        grants = (self._grant(key, number, worker, now_ms) for number in jobs)
        return tuple(grant for grant in grants if grant is not None)

    def _grant(
        self, key: SigningKey | None, number: int, worker: str, now_ms: int
    ) -> TaskGrant | None:
        if key is None:
            return None
        return task_tokens.grant(
            key,
            number,
            self._ledger.jobs[number].user,
            worker,
            expires_ms=now_ms + self._token_life_ms,
        )

    def _template(
        self, number: int, worker: str, grant: TaskGrant | None, refs: Iterable[AttemptRef]
    ) -> TaskTemplate:
        """The template of a job's tasks on a host, with the arguments of these attempts, and for a
        route the port of requests and its settle time.
        """
        made = template(self._ledger.jobs[number], grant)
        found = self._ledger.route_for(number)
        if made.calls is not None and len(made.calls.segments) > 1:
            needed = made.calls.of(ref.index for ref in refs if ref.job == number)
            made = msgspec.structs.replace(made, calls=needed)
        device = made.resources.device
        host = self._ledger.workers.get(worker)
        if (
            device is not None
            and host is not None
            and (variant := host.attributes.get(DEVICE_VARIANT)) is not None
        ):
            of_host = msgspec.structs.replace(
                made.resources, device=device.with_variant(str(variant))
            )
            made = msgspec.structs.replace(made, resources=of_host)
        if found is None:
            return made
        spec = found[0].spec
        return msgspec.structs.replace(made, serves=spec.port, settle_ms=int(spec.settle_s * 1000))

    def _stop(self, ref: AttemptRef, why: Cause) -> Stop:
        """How an attempt is ended: a route serves until proxies have stopped sending it requests,
        then finishes those it has.

        A preempted route has the same grace period as a job.
        """
        limits = self._ledger.grace_limits
        job = self._ledger.jobs.get(ref.job)
        if job is None:
            return Stop(ref, limits.unstated_ms, why)
        if self._is_at_once(job, ref):
            return Stop(ref, 0, why)
        found = self._ledger.route_for(ref.job)
        if found is None:
            return Stop(ref, limits.of(job.spec.grace_ms(limits.unstated_ms), why), why)
        spec = found[0].spec
        asked_ms = limits.unstated_ms if why is Cause.PREEMPTED else int(spec.grace_s * 1000)
        return Stop(ref, limits.of(asked_ms, why), why, int(spec.settle_s * 1000))

    def _is_at_once(self, job: Job, ref: AttemptRef) -> bool:
        """Whether an attempt, of which the ledger may know nothing, is killed without a grace
        period.
        """
        known = job.task(ref.index).attempts if job.has(ref.index) else []
        return ref.attempt < len(known) and known[ref.attempt].at_once

    def _hosts(self, job: Job) -> tuple[str, ...]:
        """The address of each member's host, by task index."""
        return tuple(
            self._address(task.attempts[-1].worker) if task.attempts else "" for task in job.tasks
        )

    def _address(self, worker: str) -> str:
        known = self._ledger.workers.get(worker)
        return (known.address if known is not None else "") or worker


def _lacks_notice(attempt: Attempt) -> bool:
    """Whether an attempt goes on, and was not told of a drain."""
    noticed = any(notice.reason is NoticeReason.DRAIN for notice in attempt.notices)
    return attempt.status is KernelStatus.RUNNING and not attempt.is_stopping and not noticed


def parts(order: Order) -> Iterator[Order]:
    """The order split into orders of at most `CHUNK_BYTES`, or of one attempt where that is larger.

    Each part is idempotent, so the parts may be executed in any sequence and repeated separately.
    Renewals, timeouts and what is muted go with the first.
    """
    refs = [(name, ref) for name in _LISTS for ref in getattr(order, name)]
    if len(refs) < 2 or len(codec.pack(order)) <= CHUNK_BYTES:
        yield order
        return
    renewals = order.renewals
    timeouts = order.timeouts
    muted = order.muted
    for half in (refs[: len(refs) // 2], refs[len(refs) // 2 :]):
        lists = {name: tuple(ref for kind, ref in half if kind == name) for name in _LISTS}
        jobs = {ref.job for name in _LISTS[:3] for ref in lists[name]}
        templates = tuple(template for template in order.templates if template.job in jobs)
        gangs = tuple(gang for gang in order.gangs if gang.job in jobs)
        chains = tuple(
            Chain((*chain.ahead, *before), within)
            for chain in order.chains
            if (within := tuple(ref for ref in chain.members if ref in lists["run"]))
            for before in [chain.members[: chain.members.index(within[0])]]
        )
        first = {"renewals": renewals, "timeouts": timeouts, "muted": muted}
        yield from parts(
            msgspec.structs.replace(
                order, templates=templates, gangs=gangs, chains=chains, **first, **lists
            )
        )
        renewals = ()
        timeouts = {}
        muted = None


OVER_MS = 1000
"""For so long it is not asked again who has stored as much today as the quota allows."""
RENEWALS = 4
"""How often tokens are renewed while one lives."""
_LISTS = ("run", "prepare", "start", "stop", "drained")


def _withdraw(draft: _Draft, ref: AttemptRef) -> None:
    draft.run.pop(ref, None)
    draft.prepare.pop(ref, None)
    draft.start.pop(ref, None)


def template(job: Job, grant: TaskGrant | None = None) -> TaskTemplate:
    """The parts of the template that all tasks of a job share."""
    spec = job.spec
    return TaskTemplate(
        job=job.number,
        name=job.name,
        command=spec.command,
        env=spec.env,
        replicas=spec.replicas,
        resources=spec.resources,
        user=job.user,
        bundle=spec.bundle,
        ports=spec.ports,
        timeout_ms=job.spec.timeout_ms,
        probe=spec.probe,
        traceparent=job.traceparent,
        environment=spec.environment if spec.environment != Environment() else None,
        grant=grant,
        output=spec.output,
        array=spec.array,
        each_line=spec.each_line,
        calls=spec.calls,
        preload=spec.preload,
        stop_signal=spec.stop_signal if spec.stop is not None else 0,
        terminal=spec.terminal,
        notice=spec.notice,
        project=spec.project,
    )
