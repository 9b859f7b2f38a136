"""Decoding is safe when several threads first use a type at the same time."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import iris.client

FIRST_USE_BY_SEVERAL_THREADS = """
from __future__ import annotations

import sys, threading
import msgspec
from iris.client.decode import from_builtins, from_json

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

found = []
threads = [threading.Thread(target=one) for one in (first, json, json, builtins)]
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


def test_the_client_decodes_here_only():
    own = {"decode", "Decoder", "convert"}
    strays = [
        f"{path.name}:{node.lineno}"
        for path in Path(inspect.getfile(iris.client)).parent.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and node.attr in own
        and ast.unparse(node).startswith("msgspec.")
    ]
    assert strays == []
