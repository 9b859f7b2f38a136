"""What a call has left: the result file that its runner wrote, and how its process ended.

A task may put anything there, and the worker may be root: each step follows no link, and takes only
    what is the task's.
Source: docs/design/calls.md#results.
"""

from __future__ import annotations

import os
import stat

from iris_core.messages.gateway_worker import CallResult, CallResultKind
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended
from iris_worker.attempt.calls.given import DIRECTORY, RESULT

LARGE = ".iris-large"
"""The output directory of a call whose job has none, when its result does not fit into a
message.
"""
_KINDS: dict[bytes, CallResultKind] = {b"v": "value", b"e": "error", b"c": "chunk"}
_LIMIT = 64 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def result_of(ref: AttemptRef, data: bytes, ended: Ended) -> CallResult:
    """The result of an attempt that has ended, from what it has left; of one that left none how it
    ended.
    """
    kind = _KINDS.get(data[:1].lower())
    if kind is None or len(data) > _LIMIT + 1:
        how = (ended.cause, ended.exit_code, ended.signal)
        return CallResult(ref.index, ref.attempt, "died", b"", *how, error=ended.error)
    stored = data[:1].isupper()
    return CallResult(
        ref.index,
        ref.attempt,
        kind,
        b"" if stored else data[1:],
        cause=ended.cause,
        code=ended.exit_code,
        signal=ended.signal,
        stored=stored,
    )


def is_stored(data: bytes) -> bool:
    """Whether the result of a call that has left this is in its output directory."""
    return data[:1].isupper()


def read_result(workdir: str) -> bytes:
    """The result file; empty when there is none that its task may have written."""
    try:
        directory = os.open(f"{workdir}/{DIRECTORY}", _DIRECTORY)
    except OSError:
        return b""
    try:
        fd = os.open(RESULT, _FILE, dir_fd=directory)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.stat(workdir).st_uid:
                return b""
            return os.read(fd, _LIMIT + 2)
        finally:
            os.close(fd)
    except OSError:
        return b""
    finally:
        os.close(directory)
