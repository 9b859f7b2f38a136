"""The site builds without a warning, every link on it leads somewhere, and no page asks another
host for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from navigation import sections
from tests.house.repository import ROOT
from tests.support.browser import browser

MKDOCS = ROOT / ".venv-site" / "bin" / "mkdocs"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("MkDocs"),
]


class Html(HTMLParser):
    """The anchors of a page, what its links lead to, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("next", "prev"):
            self.loaded.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(out)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # advice of the theme's makers
    done = subprocess.run(
        command, cwd=ROOT, env=environ, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    return {
        path: Html(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }


def test_there_is_a_page_for_every_page_of_the_navigation(pages: dict[Path, Html]):
    placed = sum(len(paths) for paths in sections().values())
    assert placed > 60
    assert len(pages) == placed


def test_every_link_and_every_anchor_is_there(pages: dict[Path, Html]):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not parts.scheme and not (
                target.is_file()
                and (target not in pages or unquote(parts.fragment) in pages[target].anchors)
            ):
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[Path, Html]):
    loaded = {address for page in pages.values() for address in page.loaded}
    assert len(loaded) > 3
    assert [
        address for address in loaded if urlsplit(address).scheme or address.startswith("//")
    ] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_a_bar_within_a_table_is_shown_without_its_backslash(site: Path):
    text = (site / "howto" / "from-slurm.html").read_text(encoding="utf-8")
    assert "-o name | xargs" in text


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.needs("chromium")
async def test_a_reader_finds_a_page_by_search_without_another_host(served: str, tmp_path: Path):
    async with browser(tmp_path / "profile") as page:
        await page.open(f"{served}/index.html?q=poison_window_s")
        await page.loaded()
        assert await page.shows("troubleshooting.html#a-task-ended-and-i-do-not-know-why")
        asked = await page.value(
            "performance.getEntriesByType('resource').map((one) => one.name).join(' ')"
        )
    assert [
        address for address in asked.split() if not address.startswith((served, "blob:", "data:"))
    ] == []
