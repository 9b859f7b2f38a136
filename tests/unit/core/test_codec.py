"""Bytes to messages and back: rubbish is refused in one way, and threads may ask for a type at the same time."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import iris_gateway.client
from iris_core import codec

FIRST_USE_BY_SEVERAL_THREADS = """
from __future__ import annotations

import sys, threading
import msgspec
from iris_core.codec import from_builtins, from_json, unpack

started = threading.Event()
others = threading.Semaphore(0)

def looked_at():
    started.set()
    others.acquire(timeout=0.2)
    return int

class Inner(msgspec.Struct):
    number: looked_at()

class Outer(msgspec.Struct):
    inner: Inner

def first():
    found.append(from_json(b'{"inner":{"number":1}}', Outer))

def json():
    started.wait()
    found.append(from_json(b'{"inner":{"number":1}}', Outer))

def builtins():
    started.wait()
    found.append(from_builtins({"inner": {"number": 1}}, Outer))

def packed():
    started.wait()
    found.append(unpack(msgspec.msgpack.encode({"inner": {"number": 1}}), Outer))

found = []
threads = [threading.Thread(target=one) for one in (first, json, builtins, packed)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(found != [Outer(Inner(1))] * 4)
"""


def test_threads_may_ask_for_a_type_while_it_is_looked_at():
    program = [sys.executable, "-c", FIRST_USE_BY_SEVERAL_THREADS]
    done = subprocess.run(program, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_client_whose_threads_meet_decodes_through_the_codec_only():
    own = {"decode", "Decoder", "convert"}
    strays = [
        f"{path.name}:{node.lineno}"
        for path in Path(inspect.getfile(iris_gateway.client)).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in own and ast.unparse(node).startswith("msgspec.")
    ]
    assert strays == []


class Thing(msgspec.Struct):
    number: int


@pytest.mark.parametrize("data", [b"", b"{", b'{"number":"x"}', b"[1]", b'{"number":1}}', b"\xff", b"[" * 100_000])
def test_rubbish_is_refused_in_one_way(data: bytes):
    with pytest.raises(codec.Undecodable):
        codec.from_json(data, Thing)
    with pytest.raises(codec.Undecodable):
        codec.unpack(data, Thing)


@pytest.mark.parametrize("value", [None, {}, {"number": "x"}, [1]])
def test_values_that_are_no_message_are_refused(value: object):
    with pytest.raises(codec.Undecodable):
        codec.from_builtins(value, Thing)
