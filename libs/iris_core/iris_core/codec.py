"""Encodes and decodes messages: msgpack between services, JSON for clients. One decoder is made per
type.

Raises only `Undecodable`, so that a malformed message is refused and does not end a loop. For a
single thread; for several threads see `iris.client.decode`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from iris_core.errors import IrisError

M = TypeVar("M")

_pack = msgspec.msgpack.Encoder()
_json = msgspec.json.Encoder()


class Undecodable(IrisError):
    """Bytes that do not decode to the expected message."""


@cache
def _unpacker(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


@cache
def _json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def pack(message: Any) -> bytes:
    """A message for another service or the journal."""
    return _pack.encode(message)


def unpack(data: bytes, kind: type[M]) -> M:
    """The message in ``data``. Raises Undecodable."""
    try:
        return cast(M, _unpacker(cast(Any, kind)).decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


def to_json(value: Any) -> bytes:
    """A message as JSON, for clients of the HTTP API."""
    return _json.encode(value)


def build_decoder(kind: Any) -> None:
    """Make msgspec prepare a type and the types in it before the first message."""
    _json_decoder(kind)


def from_json(data: bytes, kind: type[M]) -> M:
    """The message in ``data``. Raises Undecodable."""
    try:
        return cast(M, _json_decoder(cast(Any, kind)).decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(str(error)) from error


def to_builtins(value: Any) -> Any:
    """A message as dictionaries, lists and plain values."""
    return msgspec.to_builtins(value)


def from_builtins(value: Any, kind: type[M]) -> M:
    """The message that dictionaries, lists and plain values represent. Raises Undecodable."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Undecodable(str(error)) from error
