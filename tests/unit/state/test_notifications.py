"""Notifications to schedulers: in order, at once while work waits, combined while none does."""

import asyncio

from iris_core import subjects
from iris_state.replication.notifications import COMPANY_S, SchedulerNotifications


class Bus:
    def __init__(self) -> None:
        self.said: list[bytes] = []

    def publish(self, subject: str, data: bytes) -> None:
        assert subject == subjects.SNAPSHOT
        self.said.append(data)


async def test_what_can_be_planned_with_leaves_at_once_with_what_waited():
    hints = SchedulerNotifications(bus := Bus())
    hints.add(b"1", urgent=True)
    hints.add(b"2", urgent=False)
    hints.add(b"3", urgent=False)
    assert bus.said == [b"1"]
    hints.add(b"4", urgent=True)
    assert bus.said == [b"1", b"2", b"3", b"4"]


async def test_nothing_waits_for_company_for_ever():
    hints = SchedulerNotifications(bus := Bus())
    began = asyncio.get_running_loop().time()
    hints.add(b"1", urgent=False)
    hints.add(b"2", urgent=False)
    async with asyncio.timeout(60):
        while not bus.said:
            await asyncio.sleep(0)
    assert bus.said == [b"1", b"2"]
    assert asyncio.get_running_loop().time() - began >= COMPANY_S
    hints.flush()
    assert bus.said == [b"1", b"2"]


async def test_while_somebody_asks_for_everything_nothing_waits():
    hints = SchedulerNotifications(bus := Bus())
    hints.add(b"1", urgent=False)
    hints.send_immediately(True)
    hints.add(b"2", urgent=False)
    assert bus.said == [b"1", b"2"]
    hints.send_immediately(False)
    hints.add(b"3", urgent=False)
    assert bus.said == [b"1", b"2"]


async def test_who_leads_no_more_tells_nothing():
    hints = SchedulerNotifications(bus := Bus())
    hints.add(b"1", urgent=False)
    hints.close()
    hints.flush()
    assert bus.said == []
