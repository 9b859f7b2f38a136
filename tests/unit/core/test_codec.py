"""Encoding and decoding of messages: all malformed input raises one error."""

from __future__ import annotations

import msgspec
import pytest

from iris_core import codec


class Thing(msgspec.Struct):
    number: int


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"number":"x"}', b"[1]", b'{"number":1}}', b"\xff", b"[" * 100_000]
)
def test_rubbish_is_refused_in_one_way(data: bytes):
    with pytest.raises(codec.Undecodable):
        codec.from_json(data, Thing)
    with pytest.raises(codec.Undecodable):
        codec.unpack(data, Thing)


@pytest.mark.parametrize("value", [None, {}, {"number": "x"}, [1]])
def test_values_that_are_no_message_are_refused(value: object):
    with pytest.raises(codec.Undecodable):
        codec.from_builtins(value, Thing)
