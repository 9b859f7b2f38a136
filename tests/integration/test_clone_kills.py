"""Clones that end before they are told to go, so that nothing of their attempts has run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris_worker.launcher import rescue
from iris_worker.launcher.records.records import Exited, Pinged, PingLauncher, TemplateState
from tests.integration.test_templates import Host, host_in, lives, ready
from tests.support.worker import until

pytestmark = pytest.mark.integration


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with host_in(tmp_path) as made:
        yield made


async def pinged(host: Host) -> list[Any]:
    """The answers until the launcher has executed everything that it was sent."""
    host.launcher.send(PingLauncher())
    host.launcher.flush()
    host.answers.remove(await host.until(lambda m: isinstance(m, Pinged)))
    return host.answers


def sockets_of(pid: int) -> int:
    """How many sockets a process has open, which may close others meanwhile."""
    found = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(fd).startswith("socket:")
    return found


@contextlib.asynccontextmanager
async def killed_before_its_word(
    host: Host, template: psutil.Process, sockets: int = 1
) -> AsyncIterator[psutil.Process]:
    """What is ordered of a template meanwhile is cloned, says hello to a launcher that is stopped,
    and is killed.

    ``sockets``: that the clone gets, with the one on which it waits for the word to go.
    """
    [launcher] = map(psutil.Process, rescue._processes(host.root))
    template.suspend()
    host.answers.clear()
    known = set(launcher.children())
    yield launcher
    await pinged(host)
    launcher.suspend()
    template.resume()
    async with asyncio.timeout(60):
        while not (clones := set(launcher.children()) - known):
            await asyncio.sleep(0.002)
        [clone] = clones
        while sockets_of(clone.pid) > sockets:  # it closes its template's when it has said hello
            await asyncio.sleep(0.002)
    clone.kill()
    await host.until_gone([clone])


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_call_whose_clone_was_killed_before_it_began_is_made(host: Host, grouped: bool):
    await ready(host, "json")
    [_, template] = sorted(host.templates(), key=psutil.Process.create_time)
    async with killed_before_its_word(host, template) as launcher:
        slot = host.call("print('made')", grouped=grouped)
    launcher.resume()
    found = await host.exit(slot)
    assert (found.code, found.error, host.out(slot)) == (0, "", "made\n")
    assert [m for m in await pinged(host) if isinstance(m, Exited | TemplateState)] == [
        Exited(slot.ref, found)
    ]
    assert lives(template)


async def test_a_clone_that_is_collected_before_its_hello_is_made_again(host: Host):
    await ready(host, "json")
    [_, template] = sorted(host.templates(), key=psutil.Process.create_time)
    async with killed_before_its_word(host, template) as launcher:
        slot = host.call("print('made')")
    other = host.call("", key="none")  # the launcher collects what has ended before it starts this
    launcher.resume()
    assert (await host.exit(other)).code == 0
    assert ((await host.exit(slot)).code, host.out(slot)) == (0, "made\n")
    assert lives(template)


@pytest.mark.needs("root")
async def test_the_template_of_a_job_that_was_killed_as_a_clone_has_not_failed(host: Host):
    async with killed_before_its_word(host, await host.bare(), sockets=2) as launcher:
        host.preload("json", grouped=False)
    launcher.resume()
    assert await host.state() == TemplateState("1")
    await until(lambda: len(launcher.children()) <= 1)
    assert [m for m in await pinged(host) if isinstance(m, TemplateState)] == []
