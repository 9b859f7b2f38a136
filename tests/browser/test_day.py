"""A person's ways through the pages of a cluster in the middle of a day, and what moves under the
reader.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from iris_core.messages.state_worker import Ended
from iris_core.states import Cause, Initiator, TaskState
from iris_state.records.changes import JobMoved, Moved
from tests.support.browser import browser
from tests.support.example_cluster import SWEEP, happen, show_example
from tests.support.gateway import house, listening
from tests.support.seen import WATCH_SHIFTS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.needs("chromium"),
]

IN_SIGHT = """(() => {
  const box = document.querySelector('#log').getBoundingClientRect();
  const seen = (row) => row.top >= box.top && row.bottom <= Math.min(box.bottom, innerHeight);
  const rows = [...document.querySelectorAll('.lines .err')].filter((row) => seen(row.getBoundingClientRect()));
  return rows.map((row) => row.textContent).join();
})()"""


async def test_two_clicks_lead_from_the_overview_to_the_line_of_a_failed_task(tmp_path: Path):
    async with house() as iris, listening(iris) as http, browser(tmp_path / "profile") as page:
        await show_example(iris, time.time_ns() // 1_000_000)
        await page.open(f"{http.base_url}/")
        assert await page.shows("</footer>")
        await page.loaded()
        await page.click(f"#attention a[title='{SWEEP}']")
        await page.until("!!document.querySelector('#causes')")
        await page.loaded()
        await page.click("#causes a.button")
        await page.until("location.pathname.startsWith('/tasks/')")
        await page.until(
            f"!!document.querySelector('#log') && ({IN_SIGHT}).includes('ValueError: loss is nan')"
        )


async def test_nothing_moves_under_a_reader_while_a_job_goes_on(tmp_path: Path):
    now_ms = time.time_ns() // 1_000_000
    async with house() as iris, listening(iris) as http, browser(tmp_path / "profile") as page:
        ledger = await show_example(iris, now_ms)
        job = ledger.find_job("/mia/augment")
        assert job is not None
        running = [index for index, task in enumerate(job.tasks) if task.state is TaskState.RUNNING]
        await page.open(f"{http.base_url}/jobs/%2Fmia%2Faugment")
        await page.until("document.querySelector('.live')?.textContent === 'live'")
        await page.value(WATCH_SHIFTS)
        await page.value("document.querySelector('#t46 .name').focus()")
        done = TaskState.SUCCEEDED
        for count, index in enumerate(running[:3], 47):
            end = Ended(Cause.EXITED, 0)
            moved = Moved(
                job.number, index, 0, done, done, Cause.EXITED, Initiator.WORKER, True, ended=end
            )
            await happen(iris, ledger, now_ms, moved)
            await page.until(
                f"document.querySelector('.of, .counts').textContent.includes('succeeded {count}')"
            )
        assert await page.value("document.activeElement.closest('tr').id") == "t46"
        assert await page.value("shifted") < 0.05
        await happen(
            iris,
            ledger,
            now_ms,
            JobMoved(job.number, job.state.__class__.FAILED, Cause.EXITED, "task 9 failed"),
        )
        await page.until(
            "document.querySelector('link[rel=icon]').href.endsWith('/iris-failed.svg')"
        )
        await page.until("document.title.startsWith('failed: /mia/augment')")
        assert page.complaints == []
