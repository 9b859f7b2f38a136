"""From events of jobs, and from time, to messages.

What is told is judged by the state service's record as it is then: an event says that something
happened, the record says what. Each event has the same messages however often it is read.
Source: docs/design/notifications.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from datetime import datetime

import msgspec

from iris_core.spec.notify import TimedWord, words_of_end
from iris_core.spec.projects import ROOT
from iris_core.states import JOB_TERMINAL, JobState, display_name
from iris_core.views.events import JobEvent
from iris_core.views.notify import JobMessage
from iris_notifier.facts import JobFacts, StateReader
from iris_notifier.matching import MatchedTarget, Matching, OwnedRule, unreported
from iris_notifier.outbox import MessageOutbox
from iris_notifier.records import SubscriptionRecord, WatchedJob
from iris_notifier.store import RecordStore

log = logging.getLogger(__name__)

RUNNING = display_name(JobState.RUNNING)
PENDING = display_name(JobState.PENDING)
_LOOK_MS = 60_000
"""How often the tasks of a running job are looked at: one that starts is no event of its job."""
ENDED = frozenset(display_name(state) for state in JOB_TERMINAL)


class JobWatch:
    """Makes messages for the records of one store.

    Args:
        url: the public address of the gateway; empty: none.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        store: RecordStore,
        outbox: MessageOutbox,
        reader: StateReader,
        *,
        url: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._reader = reader
        self._url = url.rstrip("/")
        self._now_ms = now_ms
        self._due_ms: dict[str, float] = {}
        self._is_rescheduled = asyncio.Event()
        self._turn = asyncio.Lock()
        self.matching = Matching(store)

    async def until_due(self) -> None:
        """Return when `check_due` has something to do."""
        while True:
            self._is_rescheduled.clear()
            wait_ms = min(self._due_ms.values(), default=math.inf) - self._now_ms()
            if wait_ms <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_ms == math.inf else wait_ms / 1000):
                    await self._is_rescheduled.wait()

    async def resume(self, *, is_behind: bool) -> None:
        """Look at every watched job again.

        ``is_behind``: events were deleted before they were read, so the end of one that has ended
        is told from its record.
        """
        async with self._turn:
            for watched in self._store.all(WatchedJob):
                job = await self._reader.job(watched.id, watched.user)
                if job is None:
                    self._forget(watched)
                elif job.state not in ENDED:
                    self._schedule(watched.id, 0)
                elif is_behind:
                    await self._on_end(_event_of(job), watched)

    async def on_event(self, event: JobEvent) -> None:
        """Make what an event is told by."""
        async with self._turn:
            await self._on_event(event)

    async def _on_event(self, event: JobEvent) -> None:
        known = self._store.find(f"job.{event.job_id}", WatchedJob)
        if known is None and (event.previous is None or event.previous in ENDED):
            known = await self._watch(event)
        if event.state == RUNNING:
            await self._on_running(event, known)
        elif event.state in ENDED:
            await self._on_end(event, known)

    async def watch(self, job: JobFacts) -> None:
        """Follow a job that somebody has subscribed to."""
        async with self._turn:
            known = self._store.find(f"job.{job.id}", WatchedJob)
            if known is None:
                known = _watched(job)
                self._store.save(known)
            self._schedule(known.id, 0)

    async def check_due(self) -> None:
        """Tell of jobs that have waited, and of tasks that have run, for as long as somebody wants
        to know.
        """
        async with self._turn:
            now_ms = self._now_ms()
            for job_id in [job for job, due_ms in self._due_ms.items() if due_ms <= now_ms]:
                del self._due_ms[job_id]
                watched = self._store.find(f"job.{job_id}", WatchedJob)
                if watched is not None:
                    await self._check(watched)

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, event: JobEvent) -> WatchedJob | None:
        """Follow a new job, or one that goes on after its end, if anybody is to be told of it."""
        rules = () if event.notify is msgspec.UNSET else event.notify
        if event.previous is not None:
            job = await self._reader.job(event.job_id, event.user)
            rules = () if job is None else job.spec.notify
        if event.state in ENDED and event.previous is not None:
            return None
        if not rules and not self.matching.rules(event.job_id, event.user, _project(event), None):
            return None
        watched = WatchedJob(
            id=event.job_id,
            name=event.job,
            user=event.user,
            project=_project(event),
            rules=rules,
            submitted_ms=event.at_ms,
        )
        self._store.save(watched)
        self._schedule(watched.id, 0)
        return watched

    async def _on_running(self, event: JobEvent, watched: WatchedJob | None) -> None:
        rules = self.matching.rules(event.job_id, event.user, _project(event), watched)
        matched = self.matching.matched(rules, ("started",))
        job = await self._reader.job(event.job_id, event.user) if matched else None
        delivery_id = f"{event.job_id}.started"
        if job is not None and job.coscheduled:
            delivery_id += f".{event.seq}"  # a gang is told of with each restart
        if watched is not None:
            if not watched.has_started:
                watched.has_started = True
                self._store.save(watched)
            self._schedule(watched.id, 0)  # its time limit counts anew after a retry
        await self._report(event, matched, delivery_id, with_exit=False)

    async def _on_end(self, event: JobEvent, watched: WatchedJob | None) -> None:
        rules = self.matching.rules(event.job_id, event.user, _project(event), watched)
        if rules:
            job = await self._reader.job(event.job_id, event.user)
            who = None if job is None or job.ended_by is None else job.ended_by.user
            words = words_of_end(event.state, is_by_owner=who == event.user)
            matched = self.matching.matched(rules, words)
            await self._report(event, matched, f"{event.job_id}.{event.seq}", with_exit=True)
        if watched is not None:
            self._forget(watched)

    async def _report(
        self, event: JobEvent, matched: list[MatchedTarget], delivery_id: str, *, with_exit: bool
    ) -> None:
        for one in matched:
            job = await self._reader.job(event.job_id, one.target.user)
            code = await self._reader.exit_code(job) if job is not None and with_exit else None
            data = JobMessage(
                job=event.job,
                job_id=event.job_id,
                user=event.user,
                project=_project(event),
                state=event.state,
                cause=event.cause,
                error=None if job is None else job.error,
                exit_code=code,
                tasks={} if job is None else job.task_counts,
                on=one.word,
                url=self._link(event.job_id),
            )
            self._outbox.add_message(one.target, one.word, delivery_id, data, self._now_ms())

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    async def _check(self, watched: WatchedJob) -> None:
        """Tell of what time has made true of a job, and note when to look again."""
        rules = self.matching.rules(watched.id, watched.user, watched.project, watched)
        open_words = unreported(rules, watched)
        if not open_words:
            return
        job = await self._reader.job(watched.id, watched.user)
        if job is None or job.state in ENDED:
            return
        first_ms = None
        if job.spec.timeout_s is not None and any(one.percent for one in open_words):
            first_ms = await self._reader.first_start_ms(job)
        now_ms = self._now_ms()
        again = math.inf
        for one in open_words:
            at_ms = _true_ms(one, watched, job, first_ms)
            if at_ms <= now_ms:
                await self._report_time(watched, rules, one.word, job)
            elif one.percent and job.state == RUNNING:
                again = min(again, at_ms, now_ms + _LOOK_MS)
            else:
                again = min(again, at_ms)
        if again < math.inf:
            self._schedule(watched.id, again)

    async def _report_time(
        self, watched: WatchedJob, rules: list[OwnedRule], word: str, job: JobFacts
    ) -> None:
        matched = self.matching.matched(rules, (word,))
        await self._report(_event_of(job), matched, f"{job.id}.{word}", with_exit=False)
        watched.reported = (*watched.reported, word)
        self._store.save(watched)

    def _forget(self, watched: WatchedJob) -> None:
        self._due_ms.pop(watched.id, None)
        for one in self._store.all(SubscriptionRecord):
            if one.job == watched.id:
                self._store.remove(one)
        self._store.remove(watched)

    def _schedule(self, job_id: str, at_ms: float) -> None:
        """Look at a job then, unless it is looked at before."""
        self._due_ms[job_id] = at_ms
        self._is_rescheduled.set()

    def _link(self, job_id: str) -> str:
        return f"{self._url}/jobs/{job_id}" if self._url else ""


def _project(event: JobEvent) -> str:
    return ROOT if event.project is msgspec.UNSET else event.project


def _watched(job: JobFacts) -> WatchedJob:
    return WatchedJob(
        id=job.id,
        name=job.name,
        user=job.user,
        project=job.project,
        rules=job.spec.notify,
        submitted_ms=_ms(job.submitted_at),
        has_started=job.started_at is not None,
    )


def _event_of(job: JobFacts) -> JobEvent:
    """As an event: of an end that nobody can read any more, or of what time has made true."""
    return JobEvent(
        job=job.name,
        job_id=job.id,
        user=job.user,
        project=job.project,
        state=job.state,
        previous=RUNNING,
        cause=job.cause,
        at_ms=0,
        seq=0,
    )


def _true_ms(
    word: TimedWord, watched: WatchedJob, job: JobFacts, first_start_ms: int | None
) -> float:
    """When a word of time becomes true, as things stand; infinite: it does not."""
    if word.seconds:
        is_waiting = job.started_at is None and job.state == PENDING
        return watched.submitted_ms + 1000 * word.seconds if is_waiting else math.inf
    if first_start_ms is None or job.spec.timeout_s is None:
        return math.inf
    return first_start_ms + job.spec.timeout_s * 10 * word.percent


def _ms(at: datetime | None) -> int:
    return 0 if at is None else int(at.timestamp() * 1000)
