"""The provider ``exec``: a program of the operator makes the hosts. JSON in, JSON and an exit code
out.

A program that hangs, prints too much or ends in any other way is a failed call, and nothing else.
It runs in a group of its own, which ends with the call, and with the provisioner.
Source: docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
from typing import Any, NamedTuple

import msgspec

from iris_core import codec
from iris_core.limits import clipped
from iris_core.messages.state_provisioner import FoundSlice, ProviderOptions, SliceOrder
from iris_provisioner.providers.provider import CallAnswer, ListFailed, ProviderResult
from iris_provisioner.providers.slot_keys import NoKey, SlotKeys
from iris_service.group_guard import GroupGuard, kill_group

log = logging.getLogger(__name__)

AT_ONCE = 8
ANSWER_BYTES = 1 << 20
LIST_BYTES = 64 << 20
_PIECE = 1 << 16
_ERRORS = 1 << 16
"""Bytes of standard error that are kept, its last ones."""
_UNGUARDED = "what would end its processes does not read"
_PIPES_S = 5.0
"""How long the pipes of a program that was ended may stay open."""
_EXHAUSTED, _REFUSED = 75, 78
_RESULTS: dict[int, ProviderResult] = {0: "accepted", _EXHAUSTED: "exhausted", _REFUSED: "refused"}


class _Said(msgspec.Struct):
    """What a program may print about a creation or a deletion."""

    reason: str = ""
    retry_after_s: float = 0.0
    detail: str = ""


class _Listed(msgspec.Struct):
    """One slice in a list. What has another cluster, or none, is not ours."""

    name: str
    labels: dict[str, str] = {}
    status: str = "running"
    detail: str = ""


class _List(msgspec.Struct):
    slices: list[_Listed]


class ProgramEnd(NamedTuple):
    """How a run of a program ended.

    Attributes:
        code: its exit code; None: it was ended, and ``trouble`` says why.
        is_unknown: there is no such program.
    """

    code: int | None
    printed: bytes = b""
    last_words: str = ""
    trouble: str = ""
    is_unknown: bool = False


class ExecProvider:
    """Runs the programs of ``[provisioner] programs``.

    Args:
        programs: their paths by name. cluster: whose slices these are. addresses: ``nats_url`` and
            ``gateway_url``, for the hosts.
    """

    def __init__(
        self,
        programs: dict[str, str],
        keys: SlotKeys,
        cluster: str,
        addresses: dict[str, str],
        *,
        timeout_s: float,
    ) -> None:
        self._programs = programs
        self._keys = keys
        self._cluster = cluster
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(AT_ONCE)
        self._guard = GroupGuard()

    async def create(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        try:
            hosts = [
                {
                    "name": host.name,
                    "key": self._keys.seed(host.name),
                    "attributes": host.attributes,
                }
                for host in order.hosts
            ]
        except (NoKey, OSError) as error:
            return CallAnswer("failed", str(error))
        asked = self._about(order, epoch) | {
            "hosts": hosts,
            "resources": order.resources,
            "attributes": order.attributes,
            "capacity": order.capacity,
            "labels": {
                "iris-cluster": self._cluster,
                "iris-pool": order.pool,
                "iris-slice": order.slice,
                "iris-number": str(order.label),
            },
            "boot_timeout_s": order.boot_timeout_s,
            **self._addresses,
        }
        return await self._call(order, asked)

    async def delete(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        return await self._call(order, self._about(order, epoch))

    async def listed(self, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        asked = {"call": "list", "cluster": self._cluster, "options": options}
        ended = await self._run(options, asked, LIST_BYTES)
        if ended.code != 0:
            raise ListFailed(_reason(ended, ""))
        try:
            found = codec.from_json(ended.printed, _List).slices
        except codec.Undecodable as error:
            raise ListFailed(f"its list cannot be read: {clipped(str(error))}") from None
        return tuple(self._ours(found))

    def close(self) -> None:
        """End the programs that run."""
        self._guard.close()

    def _ours(self, found: list[_Listed]) -> list[FoundSlice]:
        """What is of this cluster and has a number; each name once, the last one."""
        ours: dict[str, FoundSlice] = {}
        for one in found:
            number = one.labels.get("iris-number", "")
            known = number.isascii() and number.isdigit() and len(number) <= 18
            if one.labels.get("iris-cluster") == self._cluster and known:
                ours[one.name] = FoundSlice(
                    one.name, int(number), status=one.status, detail=clipped(one.detail)
                )
        return list(ours.values())

    def _about(self, order: SliceOrder, epoch: int) -> dict[str, Any]:
        return {
            "call": order.call,
            "cluster": self._cluster,
            "epoch": epoch,
            "pool": order.pool,
            "slice": order.slice,
            "number": order.label,
            "options": order.options,
        }

    async def _call(self, order: SliceOrder, asked: dict[str, Any]) -> CallAnswer:
        ended = await self._run(order.options, asked, ANSWER_BYTES)
        said = _Said()
        with contextlib.suppress(codec.Undecodable):
            said = codec.from_json(ended.printed, _Said)
        answer = _RESULTS.get(ended.code, "failed") if ended.code is not None else "failed"
        if ended.is_unknown:
            answer = "refused"  # no repeat mends it: the pool or the settings have to change
        detail = said.detail if answer == "accepted" else _reason(ended, said.reason)
        return CallAnswer(answer, clipped(detail), max(0.0, said.retry_after_s))

    async def _run(self, options: ProviderOptions, asked: dict[str, Any], most: int) -> ProgramEnd:
        """Run the program that a pool names, with one object on its standard input."""
        name = str(options.get("program", ""))
        path = self._programs.get(name)
        if path is None:
            words = f"this provisioner has no program {name!r}"
            return ProgramEnd(None, trouble=words, is_unknown=True)
        async with self._room:
            with contextlib.ExitStack() as stack:
                try:
                    begin = stack.enter_context(self._guard.group())
                    process = await asyncio.create_subprocess_exec(
                        path,
                        str(asked["call"]),
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                        stderr=asyncio.subprocess.PIPE,
                        env=self._environ(),
                        start_new_session=True,
                        preexec_fn=begin,
                    )
                except OSError as error:
                    return ProgramEnd(None, trouble=f"{name} cannot be run: {error.strerror}")
                except subprocess.SubprocessError:  # from `begin`
                    return ProgramEnd(None, trouble=f"{name} cannot be run: {_UNGUARDED}")
                return await self._within_time(process, name, codec.to_json(asked), most)

    async def _within_time(
        self, process: asyncio.subprocess.Process, name: str, asked: bytes, most: int
    ) -> ProgramEnd:
        """What a program that was started says, and how it ends, by itself or because it hangs."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await _talk(process, asked, most)
        except TimeoutError:
            return ProgramEnd(None, trouble=f"{name} did not end within {self._timeout_s:g} s")
        finally:
            await _end(process)

    def _environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**kept, "IRIS_CLUSTER": self._cluster}


async def _talk(process: asyncio.subprocess.Process, asked: bytes, most: int) -> ProgramEnd:
    """Give a program its input and read what it prints, until it has ended or printed too much."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(_last(process.stderr))
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(asked)
            await process.stdin.drain()
        process.stdin.close()
        printed = bytearray()
        while piece := await process.stdout.read(_PIECE):
            printed += piece
            if len(printed) > most:
                return ProgramEnd(None, trouble=f"it printed more than {most >> 20} MiB")
        code = await process.wait()
        return ProgramEnd(code, bytes(printed), last_words=await errors)
    finally:
        errors.cancel()
        await asyncio.wait([errors])


async def _last(stream: asyncio.StreamReader) -> str:
    """The last line of a stream, however long that is."""
    kept = b""
    while piece := await stream.read(_PIECE):
        kept = (kept + piece)[-_ERRORS:]
    lines = kept.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program and all that it started in its group.

    A process counts as ended once its pipes are, and a pipe that is not read to its end never is.
    What left the group may hold one open: nobody waits for that.
    """
    kill_group(process.pid)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PIPES_S):
            await asyncio.gather(_drop(process.stdout), _drop(process.stderr))
            await process.wait()
    process._transport.close()  # type: ignore[attr-defined]  # its pipes: no public name closes them


async def _drop(stream: asyncio.StreamReader | None) -> None:
    """Read a stream to its end."""
    while stream is not None and await stream.read(_PIECE):
        pass


def _reason(ended: ProgramEnd, said: str) -> str:
    """Why a call came to nothing, in words."""
    if ended.code is None:
        return ended.trouble
    words = said or ended.last_words
    if words and ended.code in _RESULTS:
        return words
    how = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    return f"{words} ({how})" if words else f"it ended with {how}"
