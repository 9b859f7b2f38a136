"""A template that does not answer is ended in bounded time, so that attempts which wait for it go
on.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_worker.launcher.kernel.event_loop import DelayedCall
from iris_worker.launcher.records.records import StartTemplate, TemplateState
from iris_worker.launcher.starts.spawn import Child
from iris_worker.launcher.templates import template_process as inside
from iris_worker.launcher.templates.templates import Templates


class StandIn:
    """The loop, the processes and the observer of a launcher. The first template is this process at
    another socket.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spares = self.sandboxes = self
        self.on_other_child: Any = None
        self.templates: Any = None
        self.timers: list[tuple[float, DelayedCall]] = []
        self.late_s = 0.0
        self.read: dict[int, Callable[[], object]] = {}
        self.states: list[TemplateState] = []
        self.killed: list[int] = []
        self.sockets: list[socket.socket] = []

    def runs_clone_of(self, template: str) -> bool:
        return False

    def cloned_from(self) -> set[str]:
        return set()

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: object
    ) -> DelayedCall:
        self.timers.append((delay_s, DelayedCall(0.0, lambda: callback(*arguments))))
        return self.timers[-1][1]

    def watch(self, fd: int, callback: Callable[[], object]) -> None:
        self.read[fd] = callback

    def forget(self, fd: int) -> None:
        del self.read[fd]

    def add(self, pid: int, slot: int, group: object) -> None:
        """A process without an attempt."""

    def kill(self, pid: int) -> None:
        self.killed.append(pid)

    def is_clean(self, *of: object) -> bool:
        return True

    def is_used(self, slot: int) -> bool:
        return False

    def is_free_child(self, pid: int) -> bool:
        return True

    def group_of(self, pid: int, limits: object) -> None:
        return None

    def workdir_of(self, below: str) -> str:
        return str(self.root)

    @contextlib.contextmanager
    def output_of(self, below: str) -> Iterator[tuple[int, int, int]]:
        yield 0, 1, 2

    def start(
        self, *_: object, stdio: tuple[int, int, int], **others: object
    ) -> tuple[Child, None]:
        self.sockets.append(socket.socket(fileno=os.dup(stdio[0])))
        return Child(os.getpid()), None

    def on_template(self, state: TemplateState) -> None:
        self.states.append(state)

    def on_cloned(self, *of: object) -> None:
        raise AssertionError

    on_begun = on_again = on_exit = on_differs = on_cloned

    def hear(self) -> None:
        for callback in list(self.read.values()):
            callback()

    def after(self, seconds: float, stopped_s: float = 0.0) -> None:
        """So much time goes by in which nobody answers, the last part while all of this host is
        stopped.
        """
        self.late_s = stopped_s
        due, self.timers = self.timers, []
        for delay_s, timer in due:
            if delay_s <= seconds:
                timer.run()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StandIn]:
    made: Any = StandIn(tmp_path)
    templates = Templates(made, made, made, made, tmp_path, 1 << 30)
    templates.start(StartTemplate("1", 0, "0/a", ("python3",), {}, ("json",), bare="bare"))
    made.templates = templates
    yield made
    templates.close()
    for one in made.sockets:
        one.close()


def go(host: StandIn) -> socket.socket:
    """The bare template is ready, and its clone is told to go; returns the socket of the clone."""
    [bare] = host.sockets
    bare.send(inside.READY)
    host.hear()
    bare.recv(inside.MESSAGE_BYTES)
    _, [*fds], _, _ = socket.recv_fds(bare, inside.MESSAGE_BYTES, 4)
    bare.send(inside.HELLO + (1).to_bytes(8, "big"))
    host.hear()
    assert os.read(fds[2], 1) == inside.GO
    for fd in fds[:3]:
        os.close(fd)
    host.sockets.append(socket.socket(fileno=fds[3]))
    return host.sockets[-1]


def test_a_template_is_sent_the_program_of_its_launchers_release(
    host: StandIn, monkeypatch: pytest.MonkeyPatch
):
    """A launcher outlives an upgrade: the file was moved or says other things by then."""

    def missing(path: Path) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_bytes", missing)
    host.templates.start(StartTemplate("2", 1, "1/a", ("python3",), {}, ("json",), bare="other"))
    assert b"be_template" in host.sockets[-1].recv(inside.MESSAGE_BYTES, socket.MSG_DONTWAIT)


def test_a_bare_template_that_never_answers_is_ended(host: StandIn):
    host.after(30)
    assert host.states == [TemplateState("bare"), TemplateState("1")]
    assert host.killed == [os.getpid()]


def test_a_template_that_never_answers_the_word_to_go_is_ended(host: StandIn):
    go(host)
    host.after(5)
    assert host.states == [TemplateState("bare", ready=True), TemplateState("1")]
    assert host.killed == [os.getpid()]


def test_a_template_has_more_time_where_all_of_its_host_was_stopped(host: StandIn):
    host.after(30, stopped_s=9)
    go(host)
    host.after(5, stopped_s=9)
    assert host.states == [TemplateState("bare", ready=True)]
    assert host.killed == []
    host.after(5)
    assert host.states == [TemplateState("bare", ready=True), TemplateState("1")]


def test_preloading_takes_as_long_as_it_takes(host: StandIn):
    clone = go(host)
    clone.send(inside.BEGUN)
    host.hear()
    host.after(30)
    assert host.states == [TemplateState("bare", ready=True)]
    clone.send(inside.READY)
    host.hear()
    assert host.states == [TemplateState("bare", ready=True), TemplateState("1", ready=True)]
    host.after(30)
    assert host.killed == []
