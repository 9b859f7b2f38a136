"""JSON and plain values to typed ones, where several threads may ask for a type for the first time at once.

msgspec looks at a type when it is first asked for; a second thread that asks for it meanwhile finds it half made and
crashes the process. So one thread at a time looks, and nothing in the client decodes on the way past this room.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeVar, cast

from iris_core import codec

M = TypeVar("M")

_one_at_a_time = threading.Lock()


@cache
def _look_at(kind: Any) -> None:
    with _one_at_a_time:
        codec.look_at(kind)


def from_json(data: bytes, kind: type[M]) -> M:
    """The value in ``data``. Raises Undecodable."""
    _look_at(cast(Any, kind))
    return codec.from_json(data, kind)


def from_builtins(value: Any, kind: type[M]) -> M:
    """What dictionaries, lists and plain values stand for. Raises Undecodable."""
    _look_at(cast(Any, kind))
    return codec.from_builtins(value, kind)
