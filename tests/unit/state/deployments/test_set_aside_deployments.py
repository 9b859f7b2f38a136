"""A deployment whose reconciliation raises is retried at its next turn; other deployments are not
affected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from iris_state.deployments import lifecycle
from iris_state.deployments.reconciler import DEPLOYMENT
from iris_state.records.changes import RolledOut
from tests.support.raising import Planted
from tests.support.serving import Serving


def test_a_pass_that_raises_blames_no_report_and_is_made_again(monkeypatch: pytest.MonkeyPatch):
    world = Serving()
    world.create(2)
    world.go(8)
    real, left = lifecycle.steps, [2]

    def steps(*given: Any) -> Iterator[Any]:
        left[0] -= 1
        if left[0] >= 0:
            raise Planted
        yield from real(*given)

    monkeypatch.setattr(lifecycle, "steps", steps)
    number = world.route("r1-1").job
    world.kill("r1-1")
    assert world.ledger.jobs[number].is_terminal, "the report was taken"
    assert world.route("r1-1").is_live, "what follows from it was set aside"
    world.go(60)
    assert world.routes() == {"r1-2": "healthy", "r1-3": "healthy"}


def test_a_deployment_that_never_comes_to_rest_is_set_aside(monkeypatch: pytest.MonkeyPatch):
    world = Serving()
    world.create(1)
    world.go(8)
    real = lifecycle.steps

    def restless(*given: Any) -> Iterator[Any]:
        yield RolledOut(given[2].number, given[2].rollout)

    monkeypatch.setattr(lifecycle, "steps", restless)
    world.kill("r1-1")
    assert (DEPLOYMENT, 1) in world.machine.timers.aside
    monkeypatch.setattr(lifecycle, "steps", real)
    world.go(60)
    assert world.routes() == {"r1-2": "healthy"}
