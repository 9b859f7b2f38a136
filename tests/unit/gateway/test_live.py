"""Open pages hear that something has changed, and fetch what has: shared renders, and only the
parts that differ.
"""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from iris_gateway.streams.live import PAUSE_S, LivePages, Rendered, changed, rendered
from iris_gateway.streams.readers import Turns
from tests.support.gateway import House, listening
from tests.support.pages import fill


@pytest.fixture
async def iris(iris: House) -> House:
    await fill(iris)
    return iris


def version_of(text: str) -> str:
    found = re.search(r'<main [^>]*data-version="(\w+)"', text)
    assert found is not None
    return found[1]


async def again(iris: House, path: str, version: str):
    return await iris.http.get(path, headers={"If-None-Match": f'"{version}"'})


async def test_an_open_page_gets_the_rows_and_sections_that_have_changed(iris: House):
    whole = (await iris.http.get("/jobs/%2Fa")).text
    fresh = (await again(iris, "/jobs/%2Fa", version_of(whole))).text
    iris.state.tasks["/a/1"].state = "running"
    answer = (await again(iris, "/jobs/%2Fa", version_of(fresh))).text
    assert 'id="t0" data-same></tr>' in answer
    assert 'id="spec" data-same></section>' in answer
    assert re.search(r'id="t1">.*?badge status-running', answer, re.DOTALL)
    assert answer.startswith("<title>")
    assert len(answer) < len(whole) / 2


async def test_an_open_page_without_changes_is_not_sent_again(iris: House):
    version = version_of((await iris.http.get("/workers")).text)
    iris.gateway.live = LivePages(time.monotonic)  # as another gateway, which knows no versions
    assert (await again(iris, "/workers", version)).status_code == 304


async def test_a_page_of_an_unknown_version_is_sent_as_a_whole(iris: House):
    answer = await again(iris, "/jobs/%2Fa", "of-another-day")
    assert answer.status_code == 200
    assert "data-same" not in answer.text
    assert 'id="spec">' in answer.text


async def test_the_output_is_not_read_again_for_a_page_that_follows_it(iris: House):
    await iris.state.print(1, 0, "a line of output\n", attempt=1, offset=100)
    whole = (await iris.http.get("/jobs/%2Fa")).text
    answer = (await again(iris, "/jobs/%2Fa", version_of(whole))).text
    assert ["a line of output" in text for text in (whole, answer)] == [True, False]


async def test_a_part_is_the_same_when_only_ages_differ():
    page = '<title>a</title><link rel="icon" href="i"><main id="main"><section id="s"><time datetime="1">{}</time>'
    page += '{}<table><tr id="r"><td>{}</td></tr></table></section></main>'
    turns = Turns()

    async def made(*words: str) -> Rendered:
        return await rendered(page.format(*words), 0, turns)

    old = await made("1 s ago", "x", "y")
    assert (await made("2 s ago", "x", "y")).version == old.version
    sent = await changed(await made("9 s ago", "z", "y"), old.parts, turns)
    assert '<tr id="r" data-same></tr>' in sent
    assert "z" in sent
    assert sent.endswith("</table></section></main>")


async def test_all_who_ask_for_a_page_meanwhile_share_its_next_render():
    live, renders = LivePages(time.monotonic, pause_s=0.05), 0

    async def render() -> Rendered:
        nonlocal renders
        renders += 1
        return Rendered(f"{renders}", "", frozenset())

    first = await asyncio.gather(*(live.again("page", render) for _ in range(20)))
    second = await asyncio.gather(*(live.again("page", render) for _ in range(20)))
    assert {page.html for page in first} == {"1"}
    assert {page.html for page in second} == {"2"}


async def test_nobody_waits_for_a_turn_at_a_gateway_that_stops():
    live = LivePages(time.monotonic, pause_s=3600.0)

    async def render() -> Rendered:
        return Rendered("", "", frozenset())

    await live.again("page", render)
    waiting = asyncio.create_task(live.again("page", render))
    await asyncio.sleep(0)
    live.close()
    async with asyncio.timeout(60):
        await waiting


async def test_a_page_is_told_of_changes_at_most_once_a_second(iris: House):
    clock = asyncio.get_running_loop().time
    async with (
        listening(iris) as http,
        http.stream("GET", "/changes", params={"within": "/a"}) as stream,
    ):
        lines = (line async for line in stream.aiter_lines() if line)
        assert await anext(lines) == "retry: 1000"
        began = clock()
        for _ in range(2):
            for _ in range(50):
                await iris.state.tell_task("/other/0", "running")
                await iris.state.tell_task("/a/0", "running")
            assert [await anext(lines), await anext(lines)] == ["event: change", "data: 1"]
        assert clock() - began > 0.99 * PAUSE_S


async def told(http, at: str, within: str = "/a") -> list[str]:
    """The first lines of a page's stream, up to the one that says that something has changed."""
    async with http.stream("GET", "/changes", params={"within": within, "after": at}) as stream:
        lines = (line async for line in stream.aiter_lines() if line)
        return [await anext(lines) for _ in range(3)]


async def test_a_page_is_told_at_once_of_what_happened_since_it_was_made(iris: House):
    made = re.search(r'data-at="(\d+)"', (await iris.http.get("/jobs/%2Fa")).text)
    assert made is not None
    await iris.state.tell_task("/a/0", "running")
    async with listening(iris) as http:
        for at in (made[1], "999999", "9" * 40, "x"):
            assert await told(http, at) == ["retry: 1000", "event: change", "data: 1"]


async def test_a_page_is_not_told_of_what_it_shows(iris: House):
    await iris.state.tell_task("/a/0", "running")
    while not iris.gateway.feed.newest:
        await asyncio.sleep(0)
    async with listening(iris) as http:
        made = re.search(r'data-at="(\d+)"', (await http.get("/jobs/%2Fa")).text)
        assert made is not None
        async with http.stream(
            "GET", "/changes", params={"within": "/a", "after": made[1]}
        ) as stream:
            lines = (line async for line in stream.aiter_lines())
            assert [await anext(lines), await anext(lines)] == ["retry: 1000", ""]
            next_line = asyncio.create_task(anext(lines))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not next_line.done()
            await iris.state.tell_task("/a/0", "failed")
            assert await next_line == "event: change"
