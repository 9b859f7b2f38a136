"""Decodes JSON and plain values to typed ones, safely for several threads. msgspec prepares a type
at its first use; a second thread that uses the type meanwhile crashes the process.

So one thread at a time prepares types, and the client decodes only through this module.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar, cast

from iris_core import codec

M = TypeVar("M")

_one_at_a_time = threading.Lock()


@cache
def _build_decoder(kind: Any) -> None:
    with _one_at_a_time:
        codec.build_decoder(kind)


def from_json(data: bytes, kind: type[M]) -> M:
    """The value in ``data``. Raises Undecodable."""
    _build_decoder(cast(Any, kind))
    return codec.from_json(data, kind)


def from_builtins(value: Any, kind: type[M]) -> M:
    """The value that dictionaries, lists and plain values represent. Raises Undecodable."""
    _build_decoder(cast(Any, kind))
    return codec.from_builtins(value, kind)
