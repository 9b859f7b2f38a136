"""The process that simulates many workers behaves as real workers do."""

from __future__ import annotations

import pytest

from iris_bus.contract import Connection
from iris_core.messages.message import AttemptRef
from iris_core.spec.resources import Amount
from iris_core.states import KernelStatus
from tests.support.fake_workers import FakeWorkers
from tests.support.state import FakeState, template

pytestmark = pytest.mark.integration


async def test_many_workers_register_and_succeed_at_everything(connection: Connection):
    state = await FakeState(connection, "fake-00002", hears_all=True).start()
    workers = FakeWorkers(connection.bus, 3, 5.0, Amount(1000), {})
    await workers.start()
    assert [register.worker for register in state.registered] == [
        "fake-00000",
        "fake-00001",
        "fake-00002",
    ]
    ref = AttemptRef(1, 0, 0)
    await state.tell([template("true")], run=[ref])
    assert (await state.ended(ref)).exit_code == 0
    assert state.reported(ref) == [
        KernelStatus.PREPARING,
        KernelStatus.RUNNING,
        KernelStatus.TERMINATED,
    ]
