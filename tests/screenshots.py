"""``python -m tests.screenshots``: every page of an example cluster as a picture, in screenshots/.

``--readme`` also makes the two pictures of README.md, in docs/images/. Needs chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from tests.house.repository import ROOT
from tests.support.browser import Page, browser
from tests.support.example_cluster import DEPLOYMENT, GANG, PIPELINE, SWEEP, WAITING, show_example
from tests.support.example_fleet import (
    EMPTY_POOL,
    EXHAUSTED_POOL,
    FULL_POOL,
    LARGE_POOL,
    REFUSED_POOL,
    STOPPED_POOL,
    show_fleet,
)
from tests.support.gateway import house, listening
from tests.support.notifier import notifier_of, show_notifications

WIDTHS = (390, 1024, 1440, 1920)
HIGHEST = 2400
"""Pixels of a page that a picture shows at most."""
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "jobs-failed": "/jobs?state=failed",
    "job-sweep": f"/jobs/{quote(SWEEP, safe='')}",
    "job-sweep-failed": f"/jobs/{quote(SWEEP, safe='')}?state=failed",
    "job-gang": f"/jobs/{quote(GANG, safe='')}",
    "job-waiting": f"/jobs/{quote(WAITING, safe='')}",
    "job-parent": f"/jobs/{quote(PIPELINE, safe='')}",
    "task": f"/tasks/{quote(GANG + '/2', safe='')}",
    "queue": "/queue",
    "workers": "/workers",
    "worker": "/workers/slice-a-w0",
    "worker-lost": "/workers/slice-d-w2",
    "fleet": "/fleet",
    "pool": f"/fleet/pools/{EXHAUSTED_POOL}",
    "pool-large": f"/fleet/pools/{LARGE_POOL}",
    "pool-empty": f"/fleet/pools/{EMPTY_POOL}",
    "pool-refused": f"/fleet/pools/{REFUSED_POOL}",
    "pool-stopped": f"/fleet/pools/{STOPPED_POOL}",
    "slice": f"/fleet/slices/{FULL_POOL}-0",
    "slice-coming": f"/fleet/slices/{EXHAUSTED_POOL}-6",
    "slice-ended": "/fleet/slices/s1",
    "worker-of-pool": f"/workers/{FULL_POOL}-0-2",
    "events-fleet": "/events?kind=slice",
    "deployments": "/deployments",
    "deployment": f"/deployments/{DEPLOYMENT}",
    "deployment-update": f"/deployments/{DEPLOYMENT}/update",
    "deployment-delete": f"/deployments/{DEPLOYMENT}/delete",
    "sessions": "/sessions",
    "projects": "/projects",
    "notifications": "/notifications",
    "audit": "/audit",
    "users": "/users",
    "events": "/events",
    "system": "/system",
    "cancel": f"/cancel?job={GANG}&job={WAITING}&job={SWEEP}",
    "missing": "/jobs/%2Fnobody%2Fnothing",
    "login": "/login",
}
README = {"overview": "/", "job": PAGES["job-sweep"]}
README_SIZE = (1320, 780)


async def draw(
    widths: tuple[int, ...], themes: tuple[str, ...], names: tuple[str, ...], readme: bool
) -> None:
    with tempfile.TemporaryDirectory(prefix="iris-screenshots-") as profile:
        async with (
            house() as iris,
            notifier_of(iris.memory) as sender,
            listening(iris) as http,
            browser(Path(profile), "--hide-scrollbars") as page,
        ):
            now_ms = time.time_ns() // 1_000_000
            ledger = await show_example(iris, now_ms)
            if readme:
                await page.prefer("light")
                for name, path in README.items():
                    await page.resize(*README_SIZE)
                    await opened(page, f"{http.base_url}{path}")
                    await save(page, ROOT / "docs" / "images" / f"{name}.png", *README_SIZE)
            await show_fleet(iris, ledger, now_ms)
            await show_notifications(iris.http, sender)
            for theme in themes:
                await page.prefer(theme)
                for name in names:
                    await page.resize(widths[0])
                    await opened(page, f"{http.base_url}{PAGES[name]}")
                    for width in widths:
                        await page.resize(width)
                        await save(
                            page, ROOT / "screenshots" / f"{name}-{theme}-{width}.png", width
                        )


async def opened(page: Page, url: str) -> None:
    await page.open(url)
    assert await page.shows("</footer>"), url
    await page.loaded()
    await page.until(
        "document.fonts.status === 'loaded' && !document.querySelector('.tools:empty')"
    )


async def save(page: Page, file: Path, width: int, high: int = 0) -> None:
    """The page as far as it reaches, or its first ``high`` pixels."""
    high = high or min(HIGHEST, await page.value("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": high, "scale": 1}
    shot = await page.send(
        "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(base64.b64decode(shot["data"]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make screenshots")
    parser.add_argument("--readme", action="store_true", help="also those of README.md")
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--themes", nargs="*", default=("light", "dark"))
    parser.add_argument("names", nargs="*", default=tuple(PAGES))
    options = parser.parse_args()
    asyncio.run(
        draw(tuple(options.widths), tuple(options.themes), tuple(options.names), options.readme)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
