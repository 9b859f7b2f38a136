"""Templates of which nothing runs hold a bounded part of a host's memory, also of many jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iris_worker.launcher.kernel import tree
from iris_worker.launcher.records.records import StartTemplate
from iris_worker.launcher.templates import template_process as inside
from iris_worker.launcher.templates.templates import Templates
from tests.unit.worker.test_silent_templates import StandIn

MIB = 1 << 20
LIMIT = 1000 * MIB


class Standing(StandIn):
    """A launcher in which each template is one process, and time goes by when it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.now_s = 100.0
        self.running: set[str] = set()
        self.templates: Any = None

    def cloned_from(self) -> set[str]:
        return self.running

    def runs_clone_of(self, template: str) -> bool:
        return template in self.running

    def make(self, key: str, user: str) -> None:
        """A template is made, and ready."""
        self.templates.start(StartTemplate(key, 0, "0/a", ("python3",), {}, bare=key, user=user))
        self.sockets[-1].send(inside.READY)
        self.hear()

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.after(1.0)

    def left(self) -> list[str]:
        return sorted(self.templates._by_key)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standing]:
    made: Any = Standing(tmp_path)
    monkeypatch.setattr(time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(tree, "own_bytes", lambda pid: 300 * MIB)
    made.templates = Templates(made, made, made, made, tmp_path, LIMIT)
    yield made
    made.templates.close()
    for one in made.sockets:
        one.close()


def test_what_one_users_jobs_have_left_ends_and_that_of_others_stays(host: Standing):
    host.make("ada", "ada")
    for number in range(6):
        host.now_s += 0.1
        host.make(f"eve-{number}", "eve")
    host.pass_s(2.0)
    assert host.left() == ["ada", "eve-4", "eve-5"]


def test_those_that_are_used_stay_and_count_for_nothing(host: Standing):
    for number in range(6):
        host.make(f"eve-{number}", "eve")
    host.running = {"eve-0", "eve-1", "eve-2", "eve-3"}
    host.pass_s(2.0)
    assert len(host.left()) == 6
    host.running = set()
    host.pass_s(2.0)
    assert len(host.left()) == 3


def test_one_that_was_made_just_now_may_be_used_at_once(host: Standing):
    for number in range(6):
        host.make(f"eve-{number}", "eve")
    host.pass_s(0.5)
    assert len(host.left()) == 6
    host.pass_s(1.0)
    assert len(host.left()) == 3


def test_the_last_one_stays_however_large(host: Standing, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tree, "own_bytes", lambda pid: 5000 * MIB)
    host.make("eve-0", "eve")
    host.make("eve-1", "eve")
    host.pass_s(2.0)
    assert len(host.left()) == 1


def test_nobody_looks_while_there_is_none(host: Standing):
    host.make("eve", "eve")
    host.templates.end("eve")
    host.timers = [one for one in host.timers if one[0] == 1.0]
    host.pass_s(1.0)
    assert host.timers == []
    host.make("eve", "eve")
    assert host.timers
