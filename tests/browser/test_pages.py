"""Dashboard pages in a real browser under their content security policy, with and without
JavaScript.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import msgspec
import pytest
import pytest_asyncio

from iris_core.states import SliceStatus
from iris_core.views.jobs import ActorView, GateView, JobLink
from iris_gateway.auth.bearer import parse_tokens
from tests.support.browser import Browser, Page, chromium
from tests.support.example_cluster import show_example
from tests.support.example_fleet import FULL_POOL, POOLS, FleetStory, pool_of, show_fleet
from tests.support.fake_state import attempt_of
from tests.support.gateway import House, house, listening
from tests.support.notifier import notifier_of, show_notifications
from tests.support.pages import fill
from tests.support.seen import (
    AXE,
    AXIS_OVERLAPS,
    CONTRASTS,
    COVERED,
    CUT,
    HIDDEN,
    STICKING_OUT,
    UNLABELLED,
    VIOLATIONS,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("chromium"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """It finds ``iris.test`` on this machine."""
    names = "--host-resolver-rules=MAP iris.test 127.0.0.1"
    async with chromium(tmp_path_factory.mktemp("profile"), names) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def page(shared: Browser) -> AsyncIterator[Page]:
    async with shared.tab() as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="module")
async def iris() -> AsyncIterator[House]:
    async with house() as made, notifier_of(made.memory) as sender:
        await fill(made)
        await show_notifications(made.http, sender)
        yield made


async def test_what_happens_comes_to_stand_on_the_page_by_itself(iris: House, page: Page):
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows(">live</p>")
        assert page.asked.count(f"{http.base_url}/jobs") == 1
        await iris.state.tell_job("/a", "failed")
        assert await page.shows('<span class="badge status-failed">failed</span>')
        assert await page.shows("<title>Jobs")
        assert page.complaints == []


async def test_what_somebody_has_focused_and_selected_survives_an_update(iris: House, page: Page):
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows(">live</p>")
        await page.value("document.querySelector('#j1 .name').focus()")
        await page.value("getSelection().selectAllChildren(document.querySelector('h1'))")
        await iris.state.tell_job("/a", "failed")
        assert await page.shows('<span class="badge status-failed">failed</span>')
        assert await page.value("document.activeElement.textContent") == "/a"
        assert await page.value("getSelection().toString()") == "Jobs"


PATHS = (
    "/",
    "/jobs",
    "/jobs/%2Fa",
    "/tasks/%2Fa%2F0",
    "/queue",
    "/workers",
    "/workers/w%200",
    "/deployments",
)
PATHS += ("/deployments/chat", "/sessions", "/users", "/audit", "/events", "/system")
PATHS += ("/fleet", "/fleet/pools/cpu", "/fleet/slices/cpu-0")
PATHS += (
    "/projects",
    "/projects/%2Fresearch/update",
    "/notifications",
    "/notifications/targets/ops/remove",
)
PATHS += ("/login", "/jobs/%2Fnope", "/cancel?job=j1")


LIGHT_FIRST = ["light", pytest.param("dark", marks=pytest.mark.soak)]
"""For what does not depend on colours; their contrast is judged in both themes."""


@pytest.fixture
def worker_failed(iris: House) -> None:
    """A job in the state with the longest name."""
    iris.state.jobs["/a"].state = "worker_failed"


async def opened(iris: House, page: Page, theme: str) -> AsyncIterator[str]:
    """The path of each page in turn, while the tab shows it in ``theme``."""
    async with listening(iris) as http:
        await page.prefer(theme)
        for path in PATHS:
            await page.open(f"{http.base_url}{path}")
            assert await page.shows("</footer>")
            await page.loaded()
            yield path


@pytest.mark.usefixtures("worker_failed")
@pytest.mark.parametrize("theme", LIGHT_FIRST)
async def test_no_page_is_wider_than_its_window_or_cuts_a_word(iris: House, page: Page, theme: str):
    async for path in opened(iris, page, theme):
        for width in (390, 768, 1024, 1440, 1920):
            await page.resize(width)
            fits = await page.value("document.documentElement.scrollWidth <= innerWidth")
            assert (path, width, fits, await page.value(CUT)) == (path, width, True, [])
            assert (path, width, await page.value(HIDDEN)) == (path, width, [])
            if width == 390:
                assert (path, await page.value(UNLABELLED)) == (path, [])
    assert [one for one in page.complaints if "404" not in one] == []


async def test_no_open_menu_sticks_out_of_its_window(iris: House, page: Page):
    async for path in opened(iris, page, "light"):
        for width in (390, 768, 1440):
            await page.resize(width)
            assert (path, width, await page.value(STICKING_OUT)) == (path, width, [])


@pytest.mark.parametrize("seconds", [0.0052, 0.13, 3500])
async def test_labels_of_the_time_axis_do_not_overlap(iris: House, page: Page, seconds: float):
    job = iris.state.jobs["/a"]
    job.state, job.finished_at = "failed", job.submitted_at + timedelta(seconds=seconds)
    for array in ("", "0,2"):
        job.spec = msgspec.structs.replace(job.spec, array=array)
        async with listening(iris) as http:
            await page.open(f"{http.base_url}/jobs/j1")
            await page.loaded()
            for width in (860, 980, 1280, 1380):
                await page.resize(width)
                assert (array, width, await page.value(AXIS_OVERLAPS)) == (array, width, [])


async def test_what_a_job_waits_for_is_read_without_being_cut_or_covered(iris: House, page: Page):
    since, by = datetime(2026, 1, 31, 8, tzinfo=UTC), ActorView(name="anonymous at 127.0.0.1")
    prep = JobLink(id="j7", name="/prepare-the-data", state="failed")
    job = iris.state.jobs["/a"]
    job.gates = [GateView(kind="dependency", opened_at=None, job=prep, when="notok", each=True)]
    job.gates += [GateView(kind="held", opened_at=None, by=by, since=since)]
    reason = {"code": "held", "message": f"held by {by.name}", "facts": {}}
    row = {
        "job": "/b",
        "job_id": "j2",
        "user": "mia",
        "band": "batch",
        "submitted_at": None,
        "tasks": 3,
    }
    iris.state.pages["gated_jobs"] = {
        "items": [{**row, "pending_reason": reason}],
        "next_cursor": None,
    }
    iris.state.pages["queue"]["items"][0]["task"] = "/train-with-all-of-it/0"
    heights = "[...document.querySelectorAll('#gated .reason, .queue .name')].map((one) => one.offsetHeight < 24)"
    async with listening(iris) as http:
        for path in ("/jobs/%2Fa", "/queue"):
            await page.open(f"{http.base_url}{path}")
            await page.loaded()
            for width in (390, 1280):
                await page.resize(width)
                assert (path, width, await page.value(COVERED)) == (path, width, [])
                assert (path, width, False not in await page.value(heights)) == (path, width, True)
    assert await page.value(heights) == [True, True]


@pytest.mark.parametrize("theme", LIGHT_FIRST)
async def test_pools_of_any_size_and_name_fit_their_window(page: Page, theme: str):
    async with house() as iris, listening(iris) as http:
        now_ms = time.time_ns() // 1_000_000
        ledger = await show_example(iris, now_ms)
        paths = ["/fleet"]
        await page.prefer(theme)
        for has_pools in (False, True):
            if has_pools:
                await show_fleet(iris, ledger, now_ms)
                paths += [f"/fleet/pools/{name}" for name in POOLS]
                paths += [f"/fleet/slices/{FULL_POOL}-0", "/fleet/slices/s1", "/"]
            for path in paths:
                await page.open(f"{http.base_url}{path}")
                assert await page.shows("</footer>")
                await page.loaded()
                for width in (390, 768, 1024, 1440, 1920):
                    await page.resize(width)
                    fits = await page.value("document.documentElement.scrollWidth <= innerWidth")
                    assert (path, width, fits, await page.value(CUT)) == (path, width, True, [])
                    assert (path, width, await page.value(HIDDEN)) == (path, width, [])
                assert (path, await page.value(CONTRASTS)) == (path, [])
        assert page.complaints == []


async def test_a_box_and_what_a_pool_lacks_change_by_themselves(page: Page):
    async with house() as iris, listening(iris) as http:
        now_ms = time.time_ns() // 1_000_000
        ledger = await show_example(iris, now_ms)
        story = FleetStory(iris, ledger, now_ms)
        await story.pool(pool_of("cpu", 3))
        await page.open(f"{http.base_url}/fleet")
        assert await page.shows("3 may be made")
        assert await page.shows(">live</p>")
        await story.slices("cpu", 1, SliceStatus.CREATING, 1)
        assert await page.shows("1 coming, 2 may be made")
        assert await page.shows('<path class="box-coming"')
        assert await page.shows("boots: its provider has begun to make it")
        assert page.complaints == []


@pytest.mark.needs("axe-core")
@pytest.mark.parametrize("theme", LIGHT_FIRST)
async def test_axe_finds_nothing_on_any_page(iris: House, page: Page, theme: str):
    async for path in opened(iris, page, theme):
        await page.value(AXE.read_text())
        assert (path, await page.value(VIOLATIONS)) == (path, "[]")


async def test_every_text_has_the_contrast_of_wcag_aa(iris: House, page: Page):
    async for path in opened(iris, page, "light"):
        for theme in ("light", "dark"):
            await page.prefer(theme)
            assert (path, theme, await page.value(CONTRASTS)) == (path, theme, [])


async def test_every_page_is_reached_from_the_menu_of_a_phone(iris: House, page: Page):
    shown = "[...document.querySelectorAll('.top nav a')].filter((one) => one.checkVisibility()"
    shown += " && one.getBoundingClientRect().right <= innerWidth).map((one) => one.textContent)"
    async with listening(iris) as http:
        await page.resize(1280)
        await page.open(f"{http.base_url}/queue")
        assert await page.shows("</footer>")
        await page.loaded()
        wide = await page.value(shown)
        await page.resize(390)
        assert await page.value(shown) == []
        assert await page.value("document.querySelector('.pages summary').textContent") == "Queue"
        await page.click(".pages summary")
        assert await page.value(shown) == wide
        await page.click(".pages a[href='/system']")
        assert await page.shows("<h1>System</h1>")


async def test_a_theme_stays_when_it_was_chosen(iris: House, page: Page):
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/jobs?state=failed")
        assert await page.shows("</footer>")
        await page.value("document.querySelector('.theme [value=dark]').click()")
        assert await page.shows('data-theme="dark"')
        assert await page.value("location.search") == "?state=failed"


async def test_without_the_script_the_page_is_whole(iris: House, page: Page):
    async with listening(iris) as http:
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows('href="/jobs/j1" title="/a">/a</a>')
        assert iris.gateway.watching == 0


async def test_what_somebody_else_put_into_a_page_does_not_run(iris: House, page: Page):
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/jobs")
        assert await page.shows(">live</p>")
        script = "let s = document.createElement('script'); s.textContent = 'document.title = 1'; document.body.append(s)"
        await page.send("Runtime.evaluate", expression=script)
        assert not await page.shows("<title>1</title>", seconds=0.5)


async def test_a_job_is_cancelled_without_the_script_and_without_fetch_metadata(page: Page):
    """Over plain HTTP under a name that is not loopback's, a browser sends no
    ``Sec-Fetch-Site``.
    """
    keyring = parse_tokens(f"ada user {sha256(b's-ada').hexdigest()}")
    async with house(keyring) as iris, listening(iris) as http:
        await fill(iris, token="s-ada")
        await page.open(f"http://iris.test:{http.base_url.port}/login")
        assert await page.shows("Sign in</button>")
        await page.value("document.querySelector('[name=token]').value = 's-ada'")
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        await page.click("main form button")
        assert await page.shows("<h1>Overview</h1>")
        await page.open(f"http://iris.test:{http.base_url.port}/jobs")
        assert await page.shows("Cancel chosen jobs")
        await page.click("input[name=job]")
        await page.click("#chosen button")
        assert await page.shows("Cancel /a?")
        await page.click(".danger")
        assert await page.shows('<span class="badge status-killed">killed</span>')
        assert [command.job for command in iris.state.commands[1:]] == ["j1"]


async def test_a_target_is_paused_and_removed_without_the_script(iris: House, page: Page):
    """A form of that page answers by the page."""
    async with listening(iris) as http:
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{http.base_url}/notifications")
        assert await page.shows('aria-label="Pause ops"')
        await page.click("[aria-label='Pause ops']")
        assert await page.shows('aria-label="Resume ops"')
        await page.click("[aria-label='Remove ops']")
        assert await page.shows("Remove ops?")
        await page.click(".danger")
        assert await page.shows("No subscription.")
        assert page.complaints == []


async def test_a_hundred_thousand_lines_are_read_searched_and_followed(iris: House, page: Page):
    offset = 0
    for start in range(0, 100_000, 20_000):
        text = "".join(f"line {number} of the output\n" for number in range(start, start + 20_000))
        await iris.state.print(1, 1, text, offset=offset)
        offset += len(text)
    iris.state.tasks["/a/1"].state, iris.state.tasks["/a/1"].attempts = "running", [attempt_of(0)]
    rows = "document.querySelectorAll('.lines > div').length"
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/tasks/%2Fa%2F1")
        assert await page.shows("line 99999 of")
        await page.until(
            "document.querySelector('.tools output') && !document.querySelector('.tools [hidden]')"
        )
        assert await page.value(rows) < 200
        await page.value(
            "[...document.querySelectorAll('.tools button')].find((one) => /earlier/.test(one.textContent)).click()"
        )
        await page.until("document.querySelector('.lines').offsetHeight >= 20 * 100000")
        await page.value("document.querySelector('#log').scrollTop = 0")
        assert await page.shows("line 0 of")
        assert await page.value(rows) < 200
        await page.value("document.querySelector('.tools input').focus()")
        await page.send("Input.insertText", text="line 50001")
        assert await page.shows("<mark>line 50001</mark>")
        await iris.state.print(1, 1, "the newest\n", offset=offset)
        assert await page.shows(">1 new ↓<")
        await page.value("document.querySelector('[data-key=G]').click()")
        assert await page.shows("the newest")
        assert page.complaints == []


COLOURED = (
    "\x1b[31mred \x1b[1mand bold\n",
    "still so\x1b[0m, no more\n",
    "\x1b[38;5;208;48;5;17mof 256\x1b[38;2;20;200;40m green\x1b[39m plain\n",
    "10%\r\x1b[96m100%\x1b[m\r\n",
    "".join(f"\x1b[{30 + n}m{n} " for n in range(8)) + "\x1b[m\n",
    '\x1b[3<i>1m \x1b]0;<b>title</b>\x07<script>document.title = 1</script> \x1b[31;"onload=x m\n',
    f"\x1b[32m{'x' * 1999}\x1b[0m<b>{'y' * 50}\n",
    "".join(f"\x1b[{31 + n % 2}m{n} " for n in range(120)) + "\n",
)


async def test_the_script_shows_lines_in_the_colours_in_which_the_server_does(
    iris: House, page: Page
):
    await iris.state.print(1, 1, "".join(COLOURED))
    iris.state.tasks["/a/1"].state, iris.state.tasks["/a/1"].attempts = "running", [attempt_of(0)]
    lines = "[...{}.querySelectorAll('.lines > div')].map((row) => row.lastElementChild.innerHTML)"
    parsed = "new DOMParser().parseFromString(text, 'text/html')"
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/tasks/%2Fa%2F1")
        await page.until("document.querySelector('.lines')?.style.paddingBottom")
        written = await page.value(
            f"fetch(location.href).then((answer) => answer.text()).then((text) => {lines.format(parsed)})"
        )
        assert await page.value(lines.format("document")) == written
        assert written[1] == '<span class="sgr-1 sgr-bold">still so</span>, no more'
        assert await page.value("document.querySelectorAll('.log script, .log b').length") == 0
        for theme in ("light", "dark"):
            await page.prefer(theme)
            assert (theme, await page.value(CONTRASTS)) == (theme, [])
        assert page.complaints == []


async def test_a_line_that_has_not_ended_is_seen_and_goes_on_in_its_row(iris: House, page: Page):
    iris.state.tasks["/a/1"].state, iris.state.tasks["/a/1"].attempts = "running", [attempt_of(0)]
    await iris.state.print(1, 1, "before\n")
    rows = "[...document.querySelectorAll('.lines > div')].map((row) => row.lastElementChild.textContent)"
    shown = f"JSON.stringify({rows})"
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/tasks/%2Fa%2F1")
        await page.until(f"""{shown} === '["before"]'""")
        await iris.state.print(1, 1, "\r1%", offset=7)
        await page.until(f"""{shown} === '["before","1%"]'""")
        await iris.state.print(1, 1, "\r2%", offset=10)
        await page.until(f"""{shown} === '["before","2%"]'""")
        await iris.state.print(1, 1, " done\nafter\n", offset=13)
        await page.until(f"""{shown} === '["before","2% done","after"]'""")
        assert page.complaints == []


async def test_the_count_of_a_search_is_right_while_lines_stream_in(iris: House, page: Page):
    await iris.state.print(
        1, 1, "".join(f"{n} {'even' if n % 2 == 0 else 'odd'}\n" for n in range(2000))
    )
    iris.state.tasks["/a/1"].state, iris.state.tasks["/a/1"].attempts = "running", [attempt_of(0)]
    count = "document.querySelector('.tools output').textContent"
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/tasks/%2Fa%2F1")
        await page.until(
            "document.querySelector('.tools output') && !document.querySelector('.tools [hidden]')"
        )
        await page.value("document.querySelector('.tools input').focus()")
        await page.send("Input.insertText", text="even")
        await page.until(f"{count}.startsWith('1,000 of 1,000 ')")
        offset = len("".join(f"{n} {'even' if n % 2 == 0 else 'odd'}\n" for n in range(2000)))
        for number in range(5):
            await iris.state.print(1, 1, "even more\nodd more\n", offset=offset + 19 * number)
        await page.until(f"{count}.startsWith('1,000 of 1,005 ')")


async def test_the_output_of_an_ended_task_takes_no_more_room_than_its_lines(
    iris: House, page: Page
):
    iris.state.jobs["/a"].state = iris.state.tasks["/a/1"].state = "failed"
    iris.state.tasks["/a/1"].attempts = [attempt_of(0, "failed")]
    await iris.state.print(1, 1, "one\ntwo\n")
    height = "document.querySelector('#log').offsetHeight"
    async with listening(iris) as http:
        await page.open(f"{http.base_url}/tasks/%2Fa%2F1")
        await page.until("document.querySelector('.newer')?.hidden")
        assert await page.value(height) < 60
        await iris.state.print(1, 1, "more\n" * 1000)
        await page.open(f"{http.base_url}/tasks/%2Fa%2F1?again")
        await page.until("document.querySelector('.newer')?.hidden")
        assert await page.value(height) == 482


async def test_no_line_is_cut_by_the_bar_above_the_output(iris: House, page: Page):
    await iris.state.print(1, 1, "".join(f"line {n} {'wide ' * 400}\n" for n in range(100)))
    iris.state.tasks["/a/1"].state, iris.state.tasks["/a/1"].attempts = "running", [attempt_of(0)]
    cut = """(() => { const top = document.querySelector('#log').getBoundingClientRect().top + 1;
        return [...document.querySelectorAll('.lines > div')].map((row) => row.getBoundingClientRect())
            .filter((box) => box.top < top - 0.5 && box.bottom > top + 0.5).length; })()"""
    async with listening(iris) as http:
        for width in (390, 1440):
            await page.resize(width)
            await page.open(f"{http.base_url}/tasks/%2Fa%2F1?{width}")
            await page.until("document.querySelector('.lines')?.textContent.includes('line 99 ')")
            await page.until("document.querySelector('.lines').style.paddingBottom")
            assert (width, await page.value(cut)) == (width, 0)
