"""Has the launcher preload modules for the attempts of a job: they are cloned from one process then
(templates).

There is one template for each job; where tasks have users or sandboxes of their own, for each slot
that a job has, which several attempts share. It is made from a bare one of the same owner, which
outlives the job; a map of one call is cloned from that itself.
Out of scope: cloning (the launcher).
Source: docs/design/calls.md#templates.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from iris_core.admission.jobs import is_cloneable
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, TaskTemplate
from iris_core.moments import show_duration
from iris_core.states import Cause
from iris_worker.agent.agent import Agent
from iris_worker.attempt.output.logs import OutputLogs
from iris_worker.attempt.output.tail import last_lines
from iris_worker.attempt.requests import BARE_KEY, StartRequests, is_relative
from iris_worker.attempt.running import RunningAttempt, RunningAttempts
from iris_worker.attempt.templates.slot_templates import SlotTemplates
from iris_worker.clock import HostClock
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import (
    EndTemplate,
    TemplateState,
)
from iris_worker.launcher.templates.memory_library import LibraryBuilder, MemoryLibrary

SLOW_S = 30.0
"""Preloading that takes longer is said to."""
_TRIES = 3
_REMEMBERED = 1000


class _Heard(NamedTuple):
    """What has become of a template, and the end of what one that has failed has printed.
    ``stopped``: it has ended because the attempt that it was made for was stopped.
    """

    state: TemplateState
    tail: str
    stopped: bool


class Preloading:
    """The templates of this worker.

    Args:
        memory: what clones restore their memory by; it may have to be built first.
        timeout_s: for preloading. on_change: called when there may be something to report.
    """

    def __init__(
        self,
        launcher: LauncherClient,
        agent: Agent,
        clock: HostClock,
        requests: StartRequests,
        attempts: RunningAttempts,
        logs: OutputLogs,
        slots: SlotTemplates,
        memory: LibraryBuilder,
        timeout_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._launcher = launcher
        self._agent = agent
        self._clock = clock
        self._requests = requests
        self._attempts = attempts
        self._logs = logs
        self._slots = slots
        self._memory = memory
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._known: dict[str, TemplateState] = {}
        self._waiting: dict[str, dict[AttemptRef, asyncio.Future[_Heard | None]]] = {}
        self._stopped: set[str] = (
            set()
        )  # templates that end because the attempts they were made for were stopped

    async def provide(self, ref: AttemptRef, template: TaskTemplate) -> Ended | None:
        """Have a prepared attempt cloned, if that is possible; returns its end when preloading has
        failed.
        """
        attempt = self._attempts.by_ref[ref]
        attempt.fresh = self._unfit(template)
        if attempt.fresh:
            return None
        key = self._key(attempt, template)
        tries = 0
        while tries < _TRIES:
            state = self._known.get(key) or await self._wait(key, attempt, template)
            if isinstance(state, Ended):
                return state
            if state is None:
                continue
            tries += 1
            if state.ready:
                attempt.template = key
                return None
            if state.text:
                attempt.fresh = f"it is not cloned: {state.text}"
                return None
        attempt.fresh = "it is not cloned: its template has ended again and again"
        return None

    def _unfit(self, template: TaskTemplate) -> str:
        """Why the attempts of a job are never cloned on this host; empty: they may be."""
        isolated = self._requests.isolated
        if template.environment is not None and template.environment.image:
            return "it is not cloned: it runs in a container"
        if isolated.sandboxed and os.geteuid():
            return "it is not cloned: the sandbox of an ordinary user shows the directory of one attempt"
        if isolated.sandboxed and template.resources.device is not None:
            return "it is not cloned: a sandbox shows the devices of one attempt"
        if template.calls is None and not is_cloneable(template.command):
            return "it is not cloned: its command is not python and a script"
        return ""

    def shares(self, template: TaskTemplate) -> bool:
        """Whether the attempts of a job share slots, each of which has a template: if nothing but
        its control group is needed to tell what is left of one.
        """
        return (
            self._requests.confines
            and is_cloned(template)
            and (template.replicas > 1 or has_many_calls(template))
            and "pids" in self._requests.cgroups.controllers
            and not self._unfit(template)
        )

    def _key(self, attempt: RunningAttempt, template: TaskTemplate) -> str:
        """Of the template that an attempt is cloned from: that of its job, or for a single call the
        bare one.
        """
        if not (template.preload or has_many_calls(template)):
            return self._requests.of_template("", attempt, template).bare
        return (
            f"{template.job}/{attempt.slot.number}"
            if self._requests.confines
            else str(template.job)
        )

    async def _wait(
        self, key: str, attempt: RunningAttempt, template: TaskTemplate
    ) -> TemplateState | Ended | None:
        """What has become of a template that is being made, or of a new one. None: it was made for
        another attempt, and has ended with that.
        """
        ref = attempt.ref
        restores = template.calls is not None and template.calls.restores_memory
        library = await self._memory.library() if restores else self._memory.present
        if not self._agent.on_building(ref):
            return Ended(Cause.CANCELLED, error="stopped before it started")
        what = ", ".join(template.preload) or "its function"
        self._agent.on_detail(ref, f"preloads {what}", self._clock.wall_ms())
        late = asyncio.get_running_loop().call_later(SLOW_S, self._tell_slow, ref, what)
        waiting = self._waiting.setdefault(key, {})
        waiting[ref] = asyncio.get_running_loop().create_future()
        try:
            if len(waiting) == 1:
                self._begin(key, attempt, template, library)
            self._on_change()
            async with asyncio.timeout(self._timeout_s):
                heard = await waiting[ref]
        except OSError as error:
            return TemplateState(key, text=str(error))
        except TimeoutError:
            self._launcher.send(EndTemplate(key))
            self._launcher.flush()
            return Ended(
                Cause.EXITED, 1, error=f"{what} were not preloaded within {self._timeout_s:g} s"
            )
        finally:
            late.cancel()
            waiting.pop(ref, None)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]
        if heard is None:
            return Ended(Cause.CANCELLED, error="stopped before it started")
        if heard.stopped:
            return None
        return self._failed(attempt, heard) if heard.state.failed else heard.state

    def _tell_slow(self, ref: AttemptRef, what: str) -> None:
        """Say how long it may still take: what hangs, or has stopped itself, holds resources until
        then.
        """
        limit = f"it fails after {show_duration(self._timeout_s)} (build_timeout_s of [worker])"
        words = f"preloads {what}, for more than {show_duration(SLOW_S)} now: {limit}"
        self._agent.on_detail(ref, words, self._clock.wall_ms())
        self._on_change()

    def _failed(self, attempt: RunningAttempt, heard: _Heard) -> Ended:
        """The end of an attempt whose template has failed: the end of what that has printed is
        output of all.
        """
        if not self._logs.follows(attempt.ref):
            self._logs.follow(attempt.slot, self._clock.steady_s())
            with contextlib.suppress(OSError):  # the disk is full
                os.write(attempt.slot.err, f"{heard.tail}\n".encode())
        return Ended(
            Cause.EXITED, 1, error=f"preloading: {heard.state.text}", stderr_tail=heard.tail
        )

    def _begin(
        self, key: str, attempt: RunningAttempt, template: TaskTemplate, library: MemoryLibrary
    ) -> None:
        if not self._logs.follows(attempt.ref):  # what preloading prints begins its output
            self._logs.follow(attempt.slot, self._clock.steady_s())
        attempt.slot.give_directory()
        attempt.slot.leave_to_nobody()  # what the template leaves may print into its output files
        request = self._requests.of_template(key, attempt, template, library)
        own = is_relative(
            request.command[0], request.env
        )  # its bare one runs what the job has brought
        job = 0 if key == request.bare and not own else template.job
        self._slots.hold(attempt.slot.number, job, template.user, "" if own else request.bare)
        self._launcher.send(request)
        self._launcher.flush()

    def on_state(self, state: TemplateState) -> None:
        """The launcher tells of a template."""
        self._known.pop(state.key, None)
        waiting = self._waiting.pop(state.key, {})
        stopped = state.key in self._stopped and not state.ready
        self._stopped.discard(state.key)
        if state.directory and state.directory not in self._directories(waiting):
            state = TemplateState(state.key)
            stopped = True  # that attempt was stopped, which may be the reason
        if state.ready or (state.text and not state.failed and not state.key.startswith(BARE_KEY)):
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[state.key] = state
        slots = (self._attempts.by_ref[ref].slot for ref in waiting) if state.failed else ()
        tail = next((last_lines(slot.err) for slot in slots if slot.below == state.directory), "")
        for future in waiting.values():
            if not future.done():
                future.set_result(_Heard(state, tail, stopped))

    def _directories(self, waiting: Mapping[AttemptRef, asyncio.Future[_Heard | None]]) -> set[str]:
        """Of the attempts that still wait."""
        return {
            self._attempts.by_ref[ref].slot.below
            for ref, future in waiting.items()
            if not future.done()
        }

    def kill(self, ref: AttemptRef) -> bool:
        """Stop an attempt that waits for its template; False when none does. Others that wait have
        it made again.
        """
        for key, waiting in self._waiting.items():
            if (future := waiting.get(ref)) is not None:
                if next(iter(waiting)) == ref:
                    self._stopped.add(key)
                    self._launcher.send(EndTemplate(key))
                    self._launcher.flush()
                if not future.done():
                    future.set_result(None)
                return True
        return False


def is_cloned(template: TaskTemplate) -> bool:
    """Whether the attempts of a job are to be clones: of one that preloads modules, and of a
    map.
    """
    return bool(template.preload) or template.calls is not None


def has_many_calls(template: TaskTemplate) -> bool:
    """Whether a job has several calls, or may get some."""
    calls = template.calls
    return calls is not None and (template.replicas > 1 or calls.idle_s is not None)


def leaves_directory(template: TaskTemplate) -> bool:
    """Whether a call may leave its directory to the next one of its job: that gets one, and nothing
    else is there.
    """
    alone = template.bundle is None and template.environment is None and not template.output
    return alone and has_many_calls(template)
