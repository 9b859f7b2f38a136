"""Finishes attempts whose processes have ended: stores output directories, and reports ends when
output is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from msgspec import structs

from iris_core.limits import clipped
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Artifact, Ended, Stage
from iris_core.units import show_bytes
from iris_worker.agent.agent import Agent
from iris_worker.agent.local_attempt import end_stage
from iris_worker.attempt.artifacts.uploader import Uploader
from iris_worker.attempt.calls.result import is_stored, read_result, result_of
from iris_worker.attempt.ends import without_result
from iris_worker.attempt.health.host_checks import HostChecks
from iris_worker.attempt.output.logs import Batch, OutputLogs, Tail
from iris_worker.attempt.running import RunningAttempt, RunningAttempts
from iris_worker.attempt.slots.workspaces import Workspace, Workspaces
from iris_worker.clock import HostClock
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import Over, Read

log = logging.getLogger(__name__)

MUTED = "not kept: its user has stored as much today as the quota allows (max_stored_today)"
RESULT_WAITS = "its call has ended; the result cannot be stored now, and the end waits for that"


class Finisher:
    """The ends of the attempts of this host.

    Args:
        flush: called at the end of a round. checks: of this host; None: there are none.
    """

    def __init__(
        self,
        agent: Agent,
        clock: HostClock,
        launcher: LauncherClient,
        uploader: Uploader,
        attempts: RunningAttempts,
        logs: OutputLogs,
        slots: Workspaces,
        flush: Callable[[], None],
        checks: HostChecks | None,
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._launcher = launcher
        self._uploader = uploader
        self._attempts = attempts
        self._logs = logs
        self._slots = slots
        self._flush = flush
        self._checks = checks
        self._waiting: set[AttemptRef] = set()
        self._unjudged: dict[AttemptRef, tuple[RunningAttempt, Ended]] = {}
        self._uncleared: dict[AttemptRef, tuple[RunningAttempt, Ended]] = {}
        self._undeleted: list[Workspace] = []

    def trouble(self) -> str:
        """Why the directories of an attempt cannot be deleted; empty when none are left. Tries
        those that are left once more.
        """
        while self._undeleted:
            try:
                self._slots.clean(self._undeleted[-1])
            except OSError as error:
                why = f"{error.strerror}: {error.filename}"
                return clipped(f"the directories of an attempt cannot be deleted: {why}")
            self._undeleted.pop()
        return ""

    def store(self, attempt: RunningAttempt, ended: Ended) -> None:
        """Store the output directory of an attempt whose processes have ended; its end is reported
        afterwards.

        One that is stopped has for it what is left of its grace period. The large result of a call
        is waited for without an end otherwise, as a small one is.
        """
        ref = attempt.ref
        slot = attempt.slot
        self._agent.on_exited(ref)
        said = partial(self._on_measured, ref)
        done = partial(self._on_stored, attempt, ended)
        needed = has_large_result(attempt)
        if ref.job in self._logs.muted and not needed:
            done(Artifact(note=MUTED))
            return
        self._uploader.begin(
            ref,
            slot.workdir,
            slot.output,
            said,
            done,
            user=slot.user,
            on_waits=partial(self._tell, ref),
            needed=needed,
        )
        if slot.ends_s:
            self._uploader.limit(ref, max(0.0, slot.ends_s - self._clock.steady_s()))

    def _on_measured(self, ref: AttemptRef, size: int) -> None:
        self._tell(ref, f"{show_bytes(size)} of output are being stored")

    def _tell(self, ref: AttemptRef, text: str) -> None:
        self._agent.on_detail(ref, text, self._clock.wall_ms())
        self._flush()

    def _on_stored(self, attempt: RunningAttempt, ended: Ended, artifact: Artifact) -> None:
        if not artifact.upload and has_large_result(attempt):
            attempt.left = b""
            self.end(attempt, without_result(ended, artifact))
        else:
            self.end(attempt, structs.replace(ended, artifact=artifact))
        self._flush()

    def end(self, attempt: RunningAttempt, ended: Ended) -> None:
        """An attempt has ended: report it at once when it has no output, otherwise when its output
        is stored.

        A failure that may be the host's waits for the check of the host, and holds its place until
        then.
        """
        ref = attempt.ref
        if self._checks is None or not self._checks.judges(self._agent.as_reported(ref, ended)):
            self._end(attempt, ended)
            return
        self._agent.on_exited(ref)
        self._unjudged[ref] = attempt, ended
        self._checks.judge(ended, partial(self._on_judged, ref))

    def _on_judged(self, ref: AttemptRef, ended: Ended) -> None:
        if (unjudged := self._unjudged.pop(ref, None)) is not None:
            self._end(unjudged[0], ended)
            self._flush()

    def skip_check(self, ref: AttemptRef) -> bool:
        """Do not wait for the check of the host before the end of an attempt is reported; False: it
        does not wait.
        """
        if (unjudged := self._unjudged.pop(ref, None)) is not None:
            self._end(*unjudged)
        return unjudged is not None

    def _end(self, attempt: RunningAttempt, ended: Ended) -> None:
        attempt.release(self._clock.steady_s())
        reported = self._agent.as_reported(attempt.ref, ended)
        self._record(attempt, reported)
        self._agent.on_free(attempt.ref, self._clock.wall_ms())
        if attempt.result is None or self._agent.is_replaced(attempt.ref):
            self._clear(attempt, reported)
        else:  # nobody waits for its slot, but somebody may for its result
            self._uncleared[attempt.ref] = attempt, reported
        self.finish(attempt, ended)

    def make_way(self, job: int) -> None:
        """Free the slot of a call of this job whose result is being stored: the next attempt needs
        its template.
        """
        if (ref := next((ref for ref in self._uncleared if ref.job == job), None)) is not None:
            attempt, ended = self._uncleared.pop(ref)
            self._clear(attempt, ended)
            if attempt.slot.reusable:
                self._logs.pass_on(ref)

    def over(self, attempt: RunningAttempt, ended: Ended) -> Stage:
        """Take the directories of an attempt that has ended away, and record its end as it is
        reported, and the result of a call.
        """
        stage = self._record(attempt, ended)
        self._clear_directories(attempt, ended)
        return stage

    def _record(self, attempt: RunningAttempt, ended: Ended) -> Stage:
        slot = attempt.slot
        if slot.call:
            left = attempt.left if attempt.left is not None else read_result(slot.workdir)
            attempt.result = result_of(slot.ref, left, ended)
        stage = end_stage(attempt.ref, ended, self._clock.wall_ms())
        self._launcher.record(Over(stage, attempt.result))
        return stage

    def finish(self, attempt: RunningAttempt, ended: Ended) -> None:
        """Report an end that is recorded, at once or when its output is stored."""
        attempt.ended, attempt.since_s = ended, self._clock.steady_s()
        replaced = self._agent.is_replaced(attempt.ref)
        if self._logs.finish(
            attempt.ref, attempt.result, replaced=replaced, silent=attempt.slot.reusable
        ):
            self._report(attempt, ended)

    def _clear(self, attempt: RunningAttempt, ended: Ended, *, silent: bool | None = None) -> None:
        """Take the directories of an attempt away, and let the next call have its slot. ``silent``:
        whether it has printed nothing, where its output is stored.
        """
        self._clear_directories(attempt, ended, silent=silent)
        if attempt.slot.call:
            self._slots.pass_on(attempt.slot)

    def _clear_directories(
        self, attempt: RunningAttempt, ended: Ended, *, silent: bool | None = None
    ) -> None:
        if not self._keep(attempt, ended, silent=silent):
            self._clean(attempt)

    def discard(self, attempt: RunningAttempt) -> None:
        """Nothing was started for an attempt, and nothing is reported of it."""
        self._clean(attempt)
        self._give(attempt)

    def stored(self, batch: Batch) -> None:
        """A batch of output is stored: report the ends that waited for it."""
        self._launcher.record(*(Read(*position) for position in self._logs.stored(batch)))
        for tail in batch.ended:
            self._reported(tail, silent=not tail.has_printed())
        self._flush()

    def give_up_logs(self, before_s: float) -> int:
        """Report the ends that have waited for their output since before this time without it;
        returns how many.

        The end of a call that has returned or raised waits on, and says so: without its result it
        would have succeeded for nothing.
        """
        late = self._attempts.late(before_s)
        waiting = [one for one in late if one.result is not None and one.result.kind != "died"]
        for attempt in waiting:
            if attempt.ref not in self._waiting:
                self._waiting.add(attempt.ref)
                self._agent.on_detail(attempt.ref, RESULT_WAITS, self._clock.wall_ms())
        given_up = [attempt for attempt in late if attempt not in waiting]
        for attempt in given_up:
            self._reported(self._logs.forget(attempt.ref))
        self._flush()
        return len(given_up)

    def _reported(self, tail: Tail, *, silent: bool = False) -> None:
        attempt = self._attempts.by_ref.get(tail.ref)
        if attempt is not None and attempt.ended is not None:
            if (uncleared := self._uncleared.pop(tail.ref, None)) is not None:
                self._clear(*uncleared, silent=silent)
            ended = structs.replace(
                attempt.ended,
                dropped_bytes=tail.dropped,
                output_bytes=tail.output_bytes,
                result_bytes=tail.result_bytes,
            )
            self._report(attempt, ended)

    def _report(self, attempt: RunningAttempt, ended: Ended) -> None:
        """Nothing of it is left here but what is reported."""
        self._agent.on_ended(attempt.ref, ended, self._clock.wall_ms())
        self._give(attempt)

    def _give(self, attempt: RunningAttempt) -> None:
        self._waiting.discard(attempt.ref)
        self._attempts.drop(attempt)
        self._slots.give(attempt.slot)

    def _keep(self, attempt: RunningAttempt, ended: Ended, *, silent: bool | None) -> bool:
        """Keep the directories of a call for the next one of its job, if it has sent what it
        returned, and left nothing; False: they are not kept.
        """
        result = attempt.result
        if (
            result is None
            or not attempt.has_sent_result
            or result.kind not in ("value", "chunk")
            or result.stored
            or ended.exit_code != 0
        ):
            return False
        can_pass = not attempt.terminal
        if silent is None:
            silent = can_pass and self._logs.is_silent(attempt.ref)
        return can_pass and silent and self._slots.keep(attempt.slot)

    def _clean(self, attempt: RunningAttempt) -> None:
        try:
            self._slots.clean(attempt.slot)
        except OSError as error:
            log.error("cannot delete the directories of attempt %s: %s", attempt.ref, error)
            attempt.slot.broken = True
            self._undeleted.append(attempt.slot)


def has_large_result(attempt: RunningAttempt) -> bool:
    """Whether an attempt is a call whose result is in its output directory."""
    return bool(attempt.left) and is_stored(attempt.left or b"")
