"""The pages in a real browser, under their own content security policy, with and without the script."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.browser import Page, browser
from tests.support.gateway import House, house, listening

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium on PATH"),
]


INJECTED = """
    const script = document.createElement("script");
    script.textContent = "document.title = 1";
    document.body.append(script);
"""


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as tab:
        yield tab


@pytest.fixture
async def iris() -> AsyncIterator[House]:
    async with house() as made:
        await made.submit("/a", replicas=2)
        yield made


async def test_what_happens_comes_to_stand_on_the_page_by_itself(iris: House, page: Page):
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows(">live</p>")
        await iris.state.tell_job("/a", "failed")
        assert await page.shows('<span class="badge status-failed">failed</span>')
        assert page.complaints == []


async def test_without_the_script_the_page_is_whole(iris: House, page: Page):
    async with listening(iris) as http:
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows('<a href="/jobs/j1">/a</a>')
        assert iris.gateway.watching == 0


async def test_what_somebody_else_put_into_a_page_does_not_run(iris: House, page: Page):
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows(">live</p>")
        script = (
            "let s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s)"
        )
        await page.send("Runtime.evaluate", expression=script)
        assert not await page.shows("<title>1</title>", seconds=0.5)
