"""Drives a real browser over its debugging pipe, without a driver program or WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


class Page:
    """One tab. ``complaints``: what the browser has written to its console, violated policies
    included. ``asked``: the addresses it has requested.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        self.asked: list[str] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        return await self._browser.send(method, self._session, **params)

    def told(self, message: dict[str, Any]) -> None:
        """Take an event of this tab."""
        if message["method"] == "Log.entryAdded":
            self.complaints.append(message["params"]["entry"]["text"])
        elif message["method"] == "Network.requestWillBeSent":
            self.asked.append(message["params"]["request"]["url"])

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What an expression of JavaScript comes to in the page."""
        found = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        return found.get("result", {}).get("value")

    async def until(self, expression: str, seconds: float = 90.0) -> None:
        """Wait until an expression of JavaScript is true in the page. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not await self.value(expression):
                await asyncio.sleep(0.05)  # a page does not tell when it has changed

    async def click(self, selector: str) -> None:
        """Press the mouse on an element, which works without scripts too. Raises TimeoutError.

        The style sheet is there before: when it comes, it moves the element.
        """
        await self.loaded()
        box: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while "model" not in box:  # nodes are numbered anew while another page is coming
                root = (await self.send("DOM.getDocument")).get("root", {}).get("nodeId", 0)
                found = await self.send("DOM.querySelector", nodeId=root, selector=selector)
                await self.send("DOM.scrollIntoViewIfNeeded", nodeId=found.get("nodeId", 0))
                box = await self.send("DOM.getBoxModel", nodeId=found.get("nodeId", 0))
        corners = box["model"]["content"]
        at = {
            "x": (corners[0] + corners[4]) / 2,
            "y": (corners[1] + corners[5]) / 2,
            "button": "left",
            "clickCount": 1,
        }
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, **at)

    async def loaded(self, seconds: float = 90.0) -> None:
        """Wait until the page and its style sheet are there. Raises TimeoutError."""
        await self.until(
            "location.href !== 'about:blank' && document.readyState === 'complete'", seconds
        )

    async def resize(self, width: int, height: int = 900) -> None:
        """Make the window that large, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)

    async def prefer(self, theme: str) -> None:
        """Ask pages for a theme, as the system does: light or dark."""
        await self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )

    async def html(self) -> str:
        """The page as it is; nothing while another is coming in its place."""
        document = await self.send("DOM.getDocument")
        shown = await self.send(
            "DOM.getOuterHTML", nodeId=document.get("root", {}).get("nodeId", 0)
        )
        return shown.get("outerHTML", "")

    async def shows(self, text: str, seconds: float = 90.0) -> bool:
        """Whether ``text`` comes to stand in the page in time."""
        try:
            async with asyncio.timeout(seconds):
                while text not in await self.html():
                    await asyncio.sleep(0.05)  # a page does not tell when it has changed
        except TimeoutError:
            return False
        return True


class Browser:
    """A browser that runs."""

    def __init__(self, write: asyncio.StreamWriter) -> None:
        self._write = write
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    async def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(60):
            return await self._waiting[number]

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Page]:
        """A tab that shares nothing with others: cookies, storage and caches are its own."""
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        target = await self.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "DOM", "Log", "Network"):
            await page.send(f"{domain}.enable")
        yield page
        await self.send("Target.disposeBrowserContext", browserContextId=context)

    async def listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            message = json.loads((await reader.readuntil(b"\0"))[:-1])
            if "method" in message:
                if page := self._pages.get(message.get("sessionId", "")):
                    page.told(message)
            elif (future := self._waiting.pop(message["id"], None)) and not future.done():
                future.set_result(message.get("result", {}))


@asynccontextmanager
async def browser(profile: Path, *flags: str) -> AsyncIterator[Page]:
    """A tab of a browser of its own."""
    async with chromium(profile, *flags) as running, running.tab() as page:
        yield page


@asynccontextmanager
async def chromium(profile: Path, *flags: str) -> AsyncIterator[Browser]:
    """A browser for as long as the block lasts."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    process = await asyncio.create_subprocess_exec(
        "bash",  # dash knows no file descriptor above 9
        "-c",
        f'exec chromium "$@" 3<&{theirs_in} 4>&{theirs_out}',
        "bash",
        *FLAGS,
        *flags,
        f"--user-data-dir={profile}",
        pass_fds=(theirs_in, theirs_out),
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    hearing, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb")
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(ours_out, "wb")
    )
    made = Browser(asyncio.StreamWriter(transport, protocol, None, loop))
    listening = asyncio.create_task(made.listen(reader))
    try:
        yield made
    finally:
        process.terminate()
        await process.wait()
        listening.cancel()
        hearing.close()
        transport.close()
