"""Templates: processes that have preloaded modules, from which attempts are cloned as children of
this process.

A bare template is started as an attempt is: with its user, namespaces and limits, in a control
group of its own. It runs nothing of its owner's, so it serves several jobs of one owner: the
template of a job is a clone of it. A clone says that it is there, which the kernel signs with its
process id; it is put into its control group, and only then told to go. An attempt whose template is
not there, or ends before its clone was told to go, starts by its command. Out of scope: what a
    template does (template_process), and when there is to be one (the worker).
Source: docs/design/calls.md#templates.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Set
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.kernel.signals import signal_process
from iris_worker.launcher.processes.process import Process
from iris_worker.launcher.processes.runner import Runner
from iris_worker.launcher.records.records import (
    EmptySlot,
    Exit,
    StartProcess,
    StartTemplate,
    TemplateState,
)
from iris_worker.launcher.starts.spawn import NotRunnable
from iris_worker.launcher.starts.spawner import Spawner
from iris_worker.launcher.templates import template_process as inside
from iris_worker.launcher.templates.reuse import ReusedProcesses
from iris_worker.launcher.templates.template import (
    OrderedClone,
    RunningTemplate,
    beyond,
    command_of,
    connection,
    control,
    how_ended,
    send_sources,
)

_BEGIN_S = 30.0
_ANSWER_S = 5.0
_STOPPED_S = 1.0
"""How long an interpreter may take to start, and a template to answer; how late a timer is where
both were stopped.
"""
_IDLE_S = 30.0
_BARE_IDLE_S = 300.0
_LARGE_BYTES = 256 << 20
"""A larger template is kept for less time after its clones: so much for `_IDLE_S`, or as much memory
for less. It is in no account then, since its job holds nothing.
"""
_IDLE_BYTES = 1 << 30
_IDLE_SHARE = 16
"""Templates of which nothing runs may hold so much together, or this part of the host's memory where
that is more.
"""
_LOOK_S = 1.0
"""How often that is looked at; a template that was used within this time may be about to be."""
_BARE = 16
"""Bare templates that are kept longer than others; what more there are cost a host memory."""


class TemplateObserver(Protocol):
    """Who orders templates and clones."""

    def on_template(self, state: TemplateState) -> None: ...

    def on_cloned(
        self, request: StartProcess, process: Process, after_s: float, note: str = ""
    ) -> None:
        """The attempt has a process. ``after_s``: since when that runs at the earliest; ``note``:
        as in `Spawned`.
        """

    def on_begun(self, ref: AttemptRef) -> None:
        """The attempt runs."""

    def on_again(self, request: StartProcess) -> None:
        """Nothing of the attempt has run: it is to be started as this says."""

    def on_differs(self, job: int) -> None:
        """After a call of this job memory was restored and compared, and differs."""

    def on_exit(self, ref: AttemptRef, exit_: Exit) -> None: ...


class Templates:
    """The templates of one launcher, by key.

    Args:
        idle_bytes: what those of which nothing runs may hold together.
    """

    def __init__(
        self,
        loop: EventLoop,
        runner: Runner,
        spawner: Spawner,
        observer: TemplateObserver,
        root: Path,
        idle_bytes: int,
    ) -> None:
        self._loop = loop
        self._idle_bytes = idle_bytes
        self._is_watched = False
        self._runner = runner
        self._spawner = spawner
        self._observer = observer
        self._by_key: dict[str, RunningTemplate] = {}
        self._by_pid: dict[int, RunningTemplate] = {}
        self._in_slot: dict[int, list[RunningTemplate]] = {}
        self._cloning: dict[AttemptRef, tuple[RunningTemplate, int]] = {}
        self._next = 1
        self._files = root / "templates"
        self._reused = ReusedProcesses(
            loop,
            runner,
            spawner,
            observer.on_cloned,
            on_begun=observer.on_begun,
            on_again=observer.on_again,
            on_unable=self._unable,
            on_differs=observer.on_differs,
        )
        runner.on_other_child, runner.on_full = self._ended, partial(self.end_in, key="")

    def start(self, request: StartTemplate) -> None:
        """Start a template, unless it is there."""
        found = self._by_key.get(request.key)
        if found is None and self._being_made(request.key) is None:
            try:
                self._end_others(request.slot, {request.key, request.bare})
                self._start(request)
            except ConnectionError:  # what it is made from has just ended
                self._observer.on_template(TemplateState(request.key))
            except (NotRunnable, OSError) as error:
                text = f"a template cannot be started: {error}"
                self._observer.on_template(
                    TemplateState(request.key, text=text, directory=request.directory)
                )
        elif found is not None and found.ready:
            self._observer.on_template(TemplateState(request.key, ready=True))

    def _being_made(self, key: str) -> tuple[RunningTemplate, int] | None:
        """The bare template of which this one is being cloned, and the number of the clone."""
        for bare in self._by_key.values():
            for number, clone in bare.clones.items():
                if isinstance(clone.request, StartTemplate) and clone.request.key == key:
                    return bare, number
        return None

    def _start(self, request: StartTemplate) -> None:
        """Start a bare template, and make that of a job from it. Raises NotRunnable, OSError."""
        bare = self._by_key.get(request.bare)
        lacks_library = bare is not None and request.library and not bare.request.library
        if bare is not None and (
            lacks_library or (bare.ready and not self._is_clean(bare, request.directory))
        ):
            self.end(bare.key)
            bare = None
        if bare is None:
            bare = self._start_bare(structs.replace(request, key=request.bare))
        if request.key == request.bare:
            return
        if bare.ready:
            self._clone_template(bare, request)
        else:
            bare.waiting.append(request)

    def _is_clean(self, bare: RunningTemplate, directory: str) -> bool:
        """Whether an attempt of another job may be cloned: nothing was left in the sandbox by the
        one before.
        """
        return self._runner.is_clean(bare.request.slot, bare.request.sandbox, directory)

    def _start_bare(self, request: StartTemplate) -> RunningTemplate:
        mine, its = control()
        try:
            (command, env), workdir = (
                command_of(request),
                self._spawner.workdir_of(request.directory),
            )
            with self._spawner.output_of(request.directory) as (_, out, err):
                child, group = self._spawner.start(
                    request.slot,
                    request.sandbox,
                    workdir,
                    command,
                    env=env,
                    stdio=(its.fileno(), out, err),
                    limits=request.limits,
                    cgroup=request.cgroup,
                    on_begun=lambda: None,
                    beside=self._runner.is_used(request.slot),
                )
            template = self._add(request, child.pid, mine, group)
            try:
                self._note(child.pid)
            except OSError:
                self._forget(template)
                raise
            send_sources(mine, request.library, request.no_library, checks=request.checks)
        except BaseException:
            mine.close()
            raise
        finally:
            its.close()
        return template

    def _add(
        self, request: StartTemplate, pid: int, mine: socket.socket, group: Group | None
    ) -> RunningTemplate:
        due_s = _BEGIN_S if request.key == request.bare else _ANSWER_S
        late = self._loop.call_later(due_s, lambda: self._silent(template))
        template = RunningTemplate(request, pid, mine, time.monotonic(), late=late)
        self._by_key[request.key] = self._by_pid[pid] = template
        if not self._is_watched:
            self._is_watched = True
            self._loop.call_later(_LOOK_S, self._look_at_all)
        self._in_slot.setdefault(template.slot, []).append(template)
        self._runner.spares.add(pid, template.slot, group)
        self._loop.watch(mine.fileno(), partial(self._read, template))
        return template

    # ── clones ────────────────────────────────────────────────────────────────────────────────────

    def clone(self, request: StartProcess) -> bool:
        """Have an attempt cloned, or made by a process that waits for it; False when its template
        is not there, or has too much to do.
        """
        template = self._by_key.get(request.template)
        if template is None or not template.ready:
            return False
        if template.is_bare and not self._is_clean(template, request.record.below):
            self.end(template.key)
            return False
        self._spawner.sandboxes.use(request.record.slot)
        call = {"command": request.command, "env": request.env}
        if self._reused.give(request, call):
            template.used_s = time.monotonic()
            return True
        try:
            restores = request.restores and not template.is_bare and not template.forks_because
            again = request.reuse > 1 and not template.is_bare
            number = self._order(
                template,
                request,
                request.record.below,
                call,
                again=again,
                restores=restores,
            )
        except OSError:
            return False
        self._cloning[request.record.ref] = (template, number)
        return True

    def _clone_template(self, bare: RunningTemplate, request: StartTemplate) -> None:
        """Have the template of a job cloned. Raises OSError."""
        order = {
            "preload": request.preload,
            "function": request.function,
            "accelerators": request.accelerators,
            "restores": request.restores,
        }
        mine, its = control()
        try:
            call = {"order": order, "env": request.env}
            number = self._order(bare, request, request.directory, call, its.fileno())
            bare.clones[number].control = mine
        except BaseException:
            mine.close()
            raise
        finally:
            its.close()

    def _order(
        self,
        template: RunningTemplate,
        request: StartProcess | StartTemplate,
        below: str,
        call: Mapping[str, object],
        *sockets: int,
        again: bool = False,
        restores: bool = False,
    ) -> int:
        """Order a clone, with its output below those of all slots; ``again``: it may make several
        calls. ``restores``: it restores its memory before each, and hears of the first like of the
        others. Returns its number. Raises OSError.
        """
        go, its = connection()
        number = self._next
        self._next = self._next + 1
        workdir = self._spawner.workdir_of(below)
        order = {**call, "workdir": workdir, "again": again or restores}
        first = marshal.dumps(order) if restores else b""
        data = marshal.dumps(
            {**({} if restores else order), "number": number, "restores": restores}
        )
        with its:
            try:
                with self._spawner.output_of(below) as (_, out, err):
                    socket.send_fds(template.control, [data], [out, err, its.fileno(), *sockets])
            except OSError:
                go.close()
                raise
        late = self._loop.call_later(_ANSWER_S, self._silent, template)
        template.clones[number] = OrderedClone(request, go, late, again=again, first=first)
        template.used_s = time.monotonic()
        return number

    def stop(self, ref: AttemptRef) -> bool:
        """End an attempt that has no process; False when it has one, or is not cloned."""
        if ref in self._cloning:
            self._take(*self._cloning[ref])
        elif not self._reused.stop(ref):
            return False
        self._observer.on_exit(ref, Exit(None, signal.SIGTERM))
        return True

    def stop_all(self) -> None:
        for ref in [*self._cloning, *self._reused.unbegun]:
            self.stop(ref)

    def _take(self, template: RunningTemplate, number: int) -> OrderedClone:
        """A clone that is not waited for any more; without a word it ends."""
        clone = template.clones.pop(number)
        clone.late.cancel()
        if clone.go is not None:
            clone.go.close()
        if isinstance(clone.request, StartProcess):
            del self._cloning[clone.request.record.ref]
        return clone

    def _fail(self, clone: OrderedClone, error: str) -> None:
        """What was to be cloned is not, for a fault of the host; who waits for a template has it
        made again.
        """
        if isinstance(clone.request, StartProcess):
            self._observer.on_exit(clone.request.record.ref, Exit(error=error))
            return
        if clone.control is not None:
            clone.control.close()
        self._observer.on_template(TemplateState(clone.request.key))

    def _silent(self, template: RunningTemplate) -> None:
        """It has not answered in time: a fault of the host, as far as is known."""
        if self._loop.late_s > _STOPPED_S:
            template.wait_again(partial(self._loop.call_later, _ANSWER_S, self._silent, template))
            return
        for number in list(template.clones):
            self._fail(
                self._take(template, number), f"its template has not answered for {_ANSWER_S:g} s"
            )
        self.end(template.key)

    def _read(self, template: RunningTemplate, most: int | None = 1) -> None:
        """Hear what it says; there is mostly one message, and the loop calls again while there is
        more.
        """
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            for data, pid in islice(template.messages(), most):
                if not data:
                    self._loop.forget(template.control.fileno())
                    return
                self._heard(template, data, pid)

    def _heard(self, template: RunningTemplate, data: bytes, pid: int) -> None:
        kind = data[:1]
        text = data[1:]
        if kind == inside.HELLO:
            self._cloned(template, int.from_bytes(text, "big"), pid)
            return
        if pid != template.pid or template.ready:
            return
        template.late.cancel()
        if kind == inside.READY:
            template.ready, template.used_s = True, time.monotonic()
            template.forks_because = text.decode(errors="replace")
            self._loop.call_later(
                kept_s(tree.own_bytes(template.pid), _IDLE_S), self._look, template
            )
            self._observer.on_template(TemplateState(template.key, ready=True))
            waiting = template.waiting
            template.waiting = []
            for request in waiting:
                self.start(request)
        elif kind != inside.BEGUN:
            self._over(template, failed=kind == inside.FAILED, text=text.decode(errors="replace"))

    def _cloned(self, template: RunningTemplate, number: int, pid: int) -> None:
        """A clone is there, or has ended. Only a child of this process that is no attempt's yet can
        be one.
        """
        if (clone := template.clones.get(number)) is None:
            return
        if not self._runner.is_free_child(pid):
            if not tree.parent(
                pid
            ):  # it was collected: whoever still holds its pipe must not hear that it goes
                self._not_cloned(self._take(template, number))
            return
        request = clone.request
        group = None
        try:
            group = self._runner.group_of(pid, request.cgroup)
            if isinstance(request, StartTemplate):
                self._note(pid)
            assert clone.go is not None
            clone.go.send(inside.GO)
        except OSError:  # it was killed, or this host cannot do it
            self._strike(pid)
            self._runner.spares.add(pid, template.slot, group)
            self._runner.spares.kill(pid)
            self._not_cloned(self._take(template, number))
            return
        if isinstance(request, StartTemplate):
            self._take(template, number)
            assert clone.control is not None
            self._add(request, pid, clone.control, group)
            return
        process = self._runner.adopt_clone(request.record, pid, group, request.template)
        first = clone.first
        link = clone.go
        clone.go = None
        self._take(template, number)
        note = self._reused.note(request)
        if request.restores and not template.is_bare and template.forks_because:
            note = note or f"a new process: its memory is not restored: {template.forks_because}"
        self._observer.on_cloned(request, process, request.record.after_s, note)
        if first:
            self._reused.begin(request, process, link, first)
            return
        if clone.again:
            self._reused.keep(request, process, link)
        else:
            process.link = link
        self._observer.on_begun(request.record.ref)

    def _unable(self, key: str, why: str) -> None:
        """A clone cannot restore its memory: further ones of its template are not asked to."""
        if (template := self._by_key.get(key)) is not None:
            template.forks_because = why

    def _not_cloned(self, clone: OrderedClone) -> None:
        """What was to be cloned was not: an attempt starts by its command, and who waits for a
        template asks again.
        """
        if isinstance(clone.request, StartProcess):
            self._observer.on_again(structs.replace(clone.request, template=""))
        else:
            self._fail(clone, "")

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def end(self, key: str) -> None:
        """Kill a template, also one that is being cloned, or the bare one that it waits for; its
        own clones go on.
        """
        waits = (
            one
            for one in self._by_key.values()
            if any(request.key == key for request in one.waiting)
        )
        if (template := self._by_key.get(key) or next(waits, None)) is not None:
            self._over(template)
        elif (found := self._being_made(key)) is not None:
            self._fail(self._take(*found), "")

    def end_in(self, slot: int, key: str) -> None:
        """An attempt is to have a slot: end the templates there but this one, and that which it was
        made from, unless others run there or are being cloned, which are of the same job.
        """
        if not (
            self._runner.is_used(slot)
            or any(template.slot == slot for template, _ in self._cloning.values())
        ):
            kept = self._by_key.get(key)
            self._end_others(slot, {key, kept.request.bare} if kept is not None else {key})

    def _end_others(self, slot: int, keys: Set[str]) -> None:
        for template in [one for one in self._in_slot.get(slot, ()) if one.key not in keys]:
            self._over(template)

    def empty(self, request: EmptySlot, done: Callable[[str], object]) -> None:
        """An attempt of another job is to have a slot: call ``done`` when nothing of the job before
        is left there.
        """
        bare = self._by_key.get(request.kept)
        keeps = (
            bare is not None and bare.ready and not (bare.waiting or bare.clones)
        )  # those are of the job before
        self._end_others(request.slot, {request.kept} if keeps else set())
        self._reused.end_in(request.slot)
        self._runner.spares.empty(request, bare.pid if keeps and bare is not None else 0, done)

    def _over(self, template: RunningTemplate, *, failed: bool = False, text: str = "") -> None:
        """A template has ended, or is to: say so, also of those that were to be made from it."""
        self._forget(template)
        directory = template.request.directory if text else ""
        for key in (template.key, *(request.key for request in template.waiting)):
            self._observer.on_template(
                TemplateState(key, failed=failed, text=text, directory=directory)
            )

    def close(self) -> None:
        for key in list(self._by_key):
            self.end(key)
        self._reused.close()

    def kill_left(self) -> None:
        """Kill the templates of an earlier launcher."""
        for path in self._files.glob("*"):
            with contextlib.suppress(OSError, ValueError):
                signal_process(int(path.name), int(path.read_text()), signal.SIGKILL)
                path.unlink()

    def _note(self, pid: int) -> None:
        """Record a template for the next launcher, which kills it. Raises OSError."""
        self._files.mkdir(mode=0o700, exist_ok=True)
        (self._files / str(pid)).write_text(str(tree.started_ticks(pid)))

    def _strike(self, pid: int) -> None:
        """Remove what `_note` has written."""
        with contextlib.suppress(OSError):
            (self._files / str(pid)).unlink()

    def _forget(self, template: RunningTemplate) -> None:
        """It is not used any more, and killed; attempts that were ordered of it are started by
        their commands.
        """
        if self._by_key.pop(template.key, None) is None:
            return
        self._in_slot[template.slot].remove(template)
        template.late.cancel()
        self._reused.end_of(template.key)
        self._loop.forget(template.control.fileno())
        template.control.close()
        self._runner.spares.kill(template.pid)
        for clone in [self._take(template, number) for number in list(template.clones)]:
            self._not_cloned(clone)

    def _ended(self, pid: int, status: int, error: Exception | None) -> None:
        """A child that is no attempt's has ended, maybe a template."""
        template = self._by_pid.pop(pid, None)
        if template is None:
            self._reused.ended(pid)
            return
        self._strike(pid)
        with contextlib.suppress(OSError):
            self._read(template, most=None)
        if self._by_key.get(template.key) is template:
            if error is not None:
                self._over(template, text=f"a template cannot be started: {error}")
            elif not template.ready and template.is_bare:
                self._over(template, text=f"its interpreter ended: {how_ended(status)}")
            elif not template.ready:
                self._over(template, failed=True, text=f"preloading was ended: {how_ended(status)}")
            else:
                self._over(template)

    def _look_at_all(self) -> None:
        """End templates of which nothing runs while they hold too much together."""
        now_s = time.monotonic()
        used = self._runner.cloned_from()
        for template in self._by_key.values():
            if template.key in used:
                template.seen_s = now_s
        idle = {
            one: tree.own_bytes(one.pid)
            for one in self._by_key.values()
            if one.ready
            and not (one.clones or one.waiting)
            and now_s - max(one.used_s, one.seen_s) >= _LOOK_S
        }
        for template in beyond(idle, self._idle_bytes):
            self.end(template.key)
        self._is_watched = bool(self._by_key)
        if self._is_watched:
            self._loop.call_later(_LOOK_S, self._look_at_all)

    def _look(self, template: RunningTemplate) -> None:
        """End a template that was not used lately, a large one soon after its clones."""
        if self._by_key.get(template.key) is not template:
            return
        keeps = template.is_bare and sum(one.is_bare for one in self._by_key.values()) <= _BARE
        most_s = _BARE_IDLE_S if keeps else _IDLE_S
        now_s = time.monotonic()
        if self._runner.runs_clone_of(template.key):
            template.seen_s = now_s
        last_s = max(template.used_s, template.seen_s)
        until_s = last_s + kept_s(tree.own_bytes(template.pid), most_s)
        rest_s = min(template.used_s + most_s, until_s) - now_s
        if rest_s <= 0 and not template.clones:
            self.end(template.key)
        else:
            self._loop.call_later(max(rest_s, 1.0), self._look, template)


def most_idle_bytes() -> int:
    """What templates of which nothing runs may hold together on this host."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(_IDLE_BYTES, memory // _IDLE_SHARE)


def kept_s(held_bytes: int, most_s: float) -> float:
    """How long a template that holds so much memory is kept when nothing runs that was cloned from
    it.
    """
    return most_s * min(1.0, _LARGE_BYTES / max(held_bytes, 1))
