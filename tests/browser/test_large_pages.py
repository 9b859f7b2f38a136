"""Every page of a large cluster in a browser: 10,000 jobs, 1,000 hosts, a job of 10,000 tasks. Part
of `make soak`.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from iris_core.messages.state_worker import Ended
from iris_core.states import Cause, Initiator, TaskState
from iris_state.records.changes import Moved
from tests.support.browser import browser
from tests.support.example_cluster import happen
from tests.support.gateway import house, listening
from tests.support.large import BIG, LARGE_PATHS, large, show
from tests.support.seen import (
    AXE,
    BLOCKING,
    BROKEN,
    CONTRASTS,
    CUT,
    ELEMENTS,
    VIOLATIONS,
    WATCH_SHIFTS,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.soak,
    pytest.mark.needs("chromium"),
]
WIDTHS = (390, 1024, 1440, 1920, 2560)
MOST_ELEMENTS = 5000


@pytest.fixture(scope="module")
def ledger():
    return large(time.time_ns() // 1_000_000)


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_each_page_fits_reads_and_stays_at_home(ledger, tmp_path: Path, theme: str):
    wrong: list[tuple[str, object, object]] = []
    async with house() as iris, listening(iris) as http, browser(tmp_path / "profile") as page:
        show(iris, ledger)
        await page.prefer(theme)
        for path in LARGE_PATHS:
            await page.resize(1440)
            await page.open(f"{http.base_url}{path}")
            assert await page.shows("</footer>"), path
            await page.loaded()
            for width in WIDTHS:
                await page.resize(width)
                if not await page.value("document.documentElement.scrollWidth <= innerWidth"):
                    wrong.append((path, width, "is wider than its window"))
                wrong += [
                    (path, width, word) for word in await page.value(CUT) + await page.value(BROKEN)
                ]
            wrong += [(path, "contrast", text) for text in (await page.value(CONTRASTS))[:3]]
            if AXE.exists():
                await page.value(AXE.read_text())
                if (found := await page.value(VIOLATIONS)) != "[]":
                    wrong.append((path, "axe", found))
        assert wrong == []
        assert page.complaints == []
        assert [url for url in page.asked if not url.startswith(str(http.base_url))] == []


async def test_painting_waits_for_one_style_sheet_and_few_elements(ledger, tmp_path: Path):
    waits, elements = {}, {}
    async with house() as iris, listening(iris) as http, browser(tmp_path / "profile") as page:
        show(iris, ledger)
        for path in LARGE_PATHS:
            await page.open(f"{http.base_url}{path}")
            assert await page.shows("</footer>"), path
            await page.loaded()
            waits[path], elements[path] = await page.value(BLOCKING), await page.value(ELEMENTS)
    assert {path: files for path, files in waits.items() if files != ["/static/iris.css"]} == {}
    assert {path: count for path, count in elements.items() if count > MOST_ELEMENTS} == {}


async def test_each_page_is_there_without_the_script(ledger, tmp_path: Path):
    async with house() as iris, listening(iris) as http, browser(tmp_path / "profile") as page:
        show(iris, ledger)
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        for path in LARGE_PATHS:
            await page.open(f"{http.base_url}{path}")
            assert await page.shows("</footer>"), path
            written = (await iris.http.get(path)).text
            assert (await page.html()).count("<tr") == written.count("<tr"), path
        assert iris.gateway.watching == 0


async def test_nothing_moves_under_the_reader_of_a_job_of_ten_thousand_tasks(
    ledger, tmp_path: Path
):
    now_ms, done = time.time_ns() // 1_000_000, TaskState.SUCCEEDED
    job = ledger.jobs[BIG]
    async with house() as iris, listening(iris) as http, browser(tmp_path / "profile") as page:
        show(iris, ledger)
        await page.open(f"{http.base_url}/jobs/j{BIG}?state=all")
        await page.until("document.querySelector('.live')?.textContent === 'live'")
        await page.value(WATCH_SHIFTS)
        running = [index for index, task in enumerate(job.tasks) if task.state is TaskState.RUNNING]
        await page.value("document.querySelector('#t40 .name').focus()")
        for index in running[:1000]:
            end = Ended(Cause.EXITED, 0)
            moved = Moved(
                BIG, index, 0, done, done, Cause.EXITED, Initiator.WORKER, True, ended=end
            )
            await happen(iris, ledger, now_ms, moved)
        succeeded = job.counts[done]
        await page.until(f"document.querySelector('.counts').textContent.includes('{succeeded:,}')")
        assert await page.value("document.activeElement.closest('tr').id") == "t40"
        assert await page.value("shifted") < 0.05
