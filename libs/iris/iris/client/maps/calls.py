"""Packs the calls of a map: the function once, the arguments of all calls in segments, each a file
in the bundle store.

The function travels with cloudpickle: a lambda, or what a script or notebook defines, by value;
what a module defines, by its name. The tasks import it from what is installed, from the directory
sent along, or from what is sent of this machine's own (`local_modules`). See also: `call_runner`,
which unpacks one call; `mapping`, which waits for its result.
Source: docs/design/calls.md#arguments.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import cloudpickle

from iris.client.http.transport import HttpRequest, Transport
from iris.client.maps import call_runner
from iris.client.maps.local_modules import local_sources
from iris.client.problems import InvalidOption, NotFound, Problem
from iris_core.spec.calls import INLINE_BYTES, Calls, Fresh, inline
from iris_core.spec.jobs import MAX_REPLICAS

COMMAND = ("python", "-P", "-S", ".iris-call/run.py")
SEGMENT_BYTES = 1 << 20
_SENT_AT_ONCE = 4
_KEPT_S = 600.0
"""The cluster keeps a file longer than that after its last use."""
_REMEMBERED = 1000

Arguments = tuple[Any, ...]


def check_size(count: int, chunksize: int) -> None:
    """Raises InvalidOption for more calls than a job has tasks for."""
    tasks = -(-count // chunksize)
    if tasks > MAX_REPLICAS:
        hint = -(-count // MAX_REPLICAS)
        raise InvalidOption(
            f"{count:,} calls with chunksize={chunksize} are {tasks:,} tasks, and a job has at most "
            f"{MAX_REPLICAS:,}; use chunksize={hint} or more"
        )


def code_of(
    function: Callable[..., Any],
    kwargs: Mapping[str, Any],
    chunksize: int,
    workdir: str | os.PathLike[str] | None = None,
) -> list[bytes]:
    """The files that the tasks of a map run: the runner and the function; ``workdir`` is sent
    along. Raises what pickling raises.
    """
    packed = pack_function(function, kwargs, chunked=chunksize > 1, workdir=workdir)
    return [runner_source(), packed]


def send_calls(
    transport: Transport,
    code: Sequence[bytes],
    blobs: Iterable[bytes],
    count: int,
    chunksize: int,
    idle_s: float | None = None,
    reuse: int = 1,
    fresh: Fresh = "memory",
) -> Calls:
    """Store what the tasks of a map read: their ``code``, unless it was stored lately, and the
    pickled arguments of each task, unless they are few bytes.

    ``idle_s``: of an open map. ``reuse``, ``fresh``: as in `MapOptions`. Raises what pickling
    raises, Problem, Unreachable.
    """
    firsts, segments = zip(*segments_of(blobs), strict=True)
    few = [inline(data) for data in segments if len(segments) == 1 and len(data) <= INLINE_BYTES]
    runner, of_function, *digests = send_files(transport, [*code, *([] if few else segments)])
    return Calls(
        runner=runner,
        function=of_function,
        segments=tuple(few or digests),
        firsts=firsts,
        count=count,
        chunksize=chunksize,
        idle_s=idle_s,
        reuse=reuse,
        fresh=fresh,
    )


def send_arguments(
    transport: Transport, blobs: Iterable[bytes], first: int
) -> tuple[list[str], list[int]]:
    """Store the pickled arguments of further tasks, from index ``first`` on; the digests of the
    files, and the index of the first task of each. Raises Problem, Unreachable.
    """
    firsts, segments = zip(*segments_of(blobs), strict=True)
    return [send_file(transport, data, new=True) for data in segments], [
        first + at for at in firsts
    ]


def pack_function(
    function: Callable[..., Any],
    kwargs: Mapping[str, Any],
    *,
    chunked: bool,
    workdir: str | os.PathLike[str] | None = None,
) -> bytes:
    """A table file: the function, constant keyword arguments, whether a task has several calls,
    Python's version, the modules that only this machine has; without those of ``workdir``, which is
    sent along.
    """
    constant = cloudpickle.dumps(dict(kwargs)) if kwargs else b""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with explaining(function):
        packed = cloudpickle.dumps(function)
    sources = local_sources(packed + constant, workdir)
    sent = pickle.dumps(sources) if sources else b""
    return table([packed, constant, b"1" if chunked else b"", version.encode(), sent])


@contextmanager
def explaining(function: Callable[..., Any]) -> Iterator[None]:
    """Give an error of pickling a function a note that names the global or outer variable at fault,
    where one is.
    """
    try:
        yield
    except Exception as error:
        if name := next(
            (name for name, value in _variables_of(function).items() if not _is_picklable(value)),
            "",
        ):
            error.add_note(
                f"{name} cannot be pickled, which the function uses: make it in the function"
            )
        raise


def _variables_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The global and outer variables that a function uses, by name; none of what is no function of
    Python.
    """
    try:
        used = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return {}
    return {**used.nonlocals, **used.globals}


def _is_picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - pickling may raise anything
        return False
    return True


def pack_arguments(calls: Iterable[Arguments], chunksize: int) -> Iterator[bytes]:
    """The arguments of each task, pickled."""
    if chunksize == 1:
        yield from map(cloudpickle.dumps, calls)
        return
    left = iter(calls)
    while chunk := list(islice(left, chunksize)):
        yield cloudpickle.dumps(chunk)


def segments_of(blobs: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Table files of about `SEGMENT_BYTES`, each with the position of its first blob."""
    part: list[bytes] = []
    first = size = 0
    for blob in blobs:
        if part and size + len(blob) > SEGMENT_BYTES:
            yield first, table(part)
            first = first + len(part)
            size = 0
            part = []
        part.append(blob)
        size += len(blob)
    if part:
        yield first, table(part)


def table(blobs: Sequence[bytes]) -> bytes:
    """A table file: how many blobs, the offset of each and of the end, then the blobs.
    Little-endian.
    """
    at = 4 + 8 * (len(blobs) + 1)
    parts = [len(blobs).to_bytes(4, "little")]
    for blob in (*blobs, b""):
        parts.append(at.to_bytes(8, "little"))
        at += len(blob)
    return b"".join((*parts, *blobs))


def is_of_missing_code(problem: Problem) -> bool:
    """Whether a map was refused because files that it names are not stored."""
    return any(mistake.code == "no_such_bundle" for mistake in problem.mistakes)


@cache
def runner_source() -> bytes:
    return Path(call_runner.__file__).read_bytes()


def send_files(transport: Transport, files: Sequence[bytes]) -> list[str]:
    """Store files; returns their digests. What this process has stored lately is there."""
    digests = [hashlib.sha256(data).hexdigest() for data in files]
    since_s = time.monotonic() - _KEPT_S
    missing = [
        data
        for digest, data in zip(digests, files, strict=True)
        if transport.stored.get(digest, since_s) <= since_s
    ]
    if len(missing) > 1:
        _send_together(transport, missing)
    elif missing:
        send_file(transport, missing[0])
    if len(transport.stored) > _REMEMBERED:
        transport.stored.clear()
    transport.stored |= dict.fromkeys(digests[:2], time.monotonic())
    return digests


def _send_together(transport: Transport, files: Sequence[bytes]) -> None:
    """Store files, several at a time; one after the other where the interpreter ends and starts no
    thread.
    """
    with ThreadPoolExecutor(_SENT_AT_ONCE, "iris-map-send") as pool:
        try:
            sending = [pool.submit(send_file, transport, data) for data in files]
        except RuntimeError:
            sending = []
        for one in sending:
            one.result()
    for data in files if not sending else ():
        send_file(transport, data)


def send_file(transport: Transport, data: bytes, *, new: bool = False) -> str:
    """Store one file, unless it is stored already; returns its digest. ``new``: it hardly is."""
    digest = hashlib.sha256(data).hexdigest()
    path = f"/v1/bundles/{digest}"
    try:
        if not new:
            transport.send(HttpRequest("HEAD", path))
    except NotFound:
        new = True
    if new:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(data))}
        transport.send(HttpRequest("PUT", path, body=io.BytesIO(data), headers=headers))
    return digest
