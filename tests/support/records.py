"""Reads a cluster's records from its journal, independently of its services."""

from __future__ import annotations

from iris_bus.connection.connection import Credentials
from iris_bus.jetstream import connect
from iris_state.check.records import check
from iris_state.clock import Clock
from iris_state.policy import Policy
from iris_state.records.ledger import Ledger
from iris_state.replication.replica import Replica


async def ledger_of(nats_url: str, credentials: Credentials | None = None) -> Ledger:
    """The records as the journal has them, found to agree with themselves."""
    connection = await connect(nats_url, name="judge", credentials=credentials)
    try:
        replica = Replica("judge", Policy(), connection, Clock())
        await replica.recover()
        check(replica.machine.ledger)
        return replica.machine.ledger
    finally:
        await connection.close()


def jobs_of(ledger: Ledger) -> set[str]:
    return {job.spec.name for job in ledger.jobs.values()}
