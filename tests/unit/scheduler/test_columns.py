"""Cached columns over workers have a bounded size."""

from __future__ import annotations

import pytest

from iris_core.spec.jobs import Constraint
from iris_core.spec.resources import ResourceRequest
from iris_core.states import ConstraintOp, PriorityBand
from iris_scheduler.mirror import columns as module
from iris_scheduler.mirror.classes import ClassKey, JobClass
from iris_scheduler.mirror.columns import Columns
from tests.support.scheduling import eq, worker


def kind(*constraints: Constraint) -> JobClass:
    return JobClass(
        ClassKey(PriorityBand.BATCH, ResourceRequest(cpu_millis=1), constraints, "", 0, None)
    )


@pytest.mark.parametrize("hosts", [1, 100])
def test_jobs_with_constraints_of_their_own_do_not_add_up(
    hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MANY", 100)
    monkeypatch.setattr(module, "_BYTES", 50_000)
    columns = Columns({f"w{number}": worker(f"w{number}") for number in range(hosts)})
    most = 100 if hosts == 1 else 50_000 // (module._WORKER_BYTES * hosts)
    for number in range(1000):
        one = kind(Constraint(f"key-{number}", ConstraintOp.NOT_EXISTS), eq("another", number))
        assert not columns.usable(one).mask.any()
        columns.forget(one)
        assert columns.kept <= most + 5  # what the last class has added


def test_what_the_classes_there_are_may_use_outlives_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MANY", 10)
    columns = Columns({"a": worker("a")})
    stays = kind(Constraint("key", ConstraintOp.NOT_EXISTS))
    usable = columns.usable(stays)
    for number in range(100):
        columns.usable(kind(eq("another", number)))
    assert columns.usable(stays) is usable
