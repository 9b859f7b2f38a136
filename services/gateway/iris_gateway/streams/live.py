"""Renders pages that are open in browsers again: once for all who watch a page, and only what has
changed is sent.

A page asks for itself again with the version that it shows. Sections and rows of tables that have
an id, and that it shows already, are sent empty and marked `data-same`. Ages are not a change: the
page counts them on. Source: docs/design/page.md#updates.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

from iris_gateway.streams.readers import Turns
from iris_service.run import shared

PAUSE_S = 1.0
"""Seconds between two renders of a page, and between two signals to one."""
SHARE = 0.1
"""The part of the time in which one page is rendered, at most."""
VERSIONS = 256
"""How many versions of pages are remembered; one is about 8 kB."""

_AGES = re.compile(r"(<time[^>]*>)[^<]*")
_SECTION = re.compile(r'(<section [^>]*id="[^"]*"[^>]*>)(.*?)(?=</section>)', re.DOTALL)
_ROW = re.compile(r'(<tr id="[^"]*"[^>]*>)(.*?)(?=</tr>)', re.DOTALL)
_MAIN = re.compile(r"<main [^>]*>.*</main>", re.DOTALL)
_HEAD = re.compile(r'<title>.*?</title>\s*<link rel="icon"[^>]*>', re.DOTALL)

Digests = frozenset[bytes]
NOTHING: Digests = frozenset()


class Rendered(NamedTuple):
    """A page with its version, and the digests of its parts."""

    html: str
    version: str
    parts: Digests


async def rendered(html: str, at: int, turns: Turns) -> Rendered:
    """A page as templates make it; its version, and the event ``at`` which it was made, are written
    into ``main``.
    """
    plain = _AGES.sub(r"\1", html[html.index("<main ") :])
    parts = set()
    for match in chain(_SECTION.finditer(plain), _ROW.finditer(plain)):
        parts.add(_digest(match))
        await turns.give()
    version = blake2b(plain.encode(), digest_size=12).hexdigest()
    return Rendered(
        html.replace("<main ", f'<main data-version="{version}" data-at="{at}" ', 1),
        version,
        frozenset(parts),
    )


def _digest(part: re.Match[str]) -> bytes:
    return blake2b(_AGES.sub(r"\1", part[0]).encode(), digest_size=8).digest()


async def changed(page: Rendered, known: Digests, turns: Turns) -> str:
    """The title, icon and content of a page, without the parts that a reader has."""

    def sent(part: re.Match[str]) -> str:
        return (
            f"{part[1][:-1]} data-same>"
            if _digest(part) in known
            else part[1] + _ROW.sub(sent, part[2])
        )

    head = _HEAD.search(page.html)
    main = _MAIN.search(page.html)
    assert head is not None
    assert main is not None
    made = [f"{head[0]}\n"]
    end = main.start()
    for section in _SECTION.finditer(page.html, main.start(), main.end()):
        made += (page.html[end : section.start()], sent(section))
        end = section.end()
        await turns.give()
    return "".join((*made, page.html[end : main.end()]))


class LivePages:
    """Renders for watchers, and what they have.

    Args:
        clock: monotonic seconds. pause_s: from the beginning of one render of a page to the next,
            at least.
    """

    def __init__(self, clock: Callable[[], float], pause_s: float = PAUSE_S) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._next: dict[object, asyncio.Task[Rendered]] = {}
        self._not_before_s: OrderedDict[object, float] = OrderedDict()
        self._versions: OrderedDict[str, Digests] = OrderedDict()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Let nobody wait for a turn any more."""
        self._closing.set()

    def remember(self, page: Rendered) -> None:
        """A reader shows this page from now on."""
        self._versions[page.version] = page.parts
        self._versions.move_to_end(page.version)
        if len(self._versions) > VERSIONS:
            self._versions.popitem(last=False)

    def parts_of(self, version: str) -> Digests:
        """The parts of a version; none when it is no longer remembered."""
        return self._versions.get(version, NOTHING)

    async def again(self, key: object, render: Callable[[], Awaitable[Rendered]]) -> Rendered:
        """A render that begins after this call, shared by all who ask for ``key`` meanwhile; one a
        second begins.
        """
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = shared(self._in_turn(key, render))
        return await asyncio.shield(task)

    async def _in_turn(self, key: object, render: Callable[[], Awaitable[Rendered]]) -> Rendered:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._not_before_s.get(key, 0.0) - self._clock())):
                await self._closing.wait()
        del self._next[key]
        began_s = self._clock()
        self._not_before_s[key] = began_s + self._pause_s
        self._not_before_s.move_to_end(key)
        if len(self._not_before_s) > VERSIONS:
            self._not_before_s.popitem(last=False)
        page = await render()
        self._not_before_s[key] = began_s + max(self._pause_s, (self._clock() - began_s) / SHARE)
        return page
