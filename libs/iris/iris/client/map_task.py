"""One task of `Client.map`: reads its item, calls the function, prints the result among the lines of its output.

Runs as ``python -m iris.client.map_task`` in the directory that was sent along. Out of scope: the caller's
side (`mapping`).
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle

FUNCTION = ".iris-function"
ITEMS = ".iris-items"
MARK = "iris-result:"
_LINE = 48 * 1024

CallOutcome = tuple[str, bytes, str]
"""Whether it is a ``value`` or an ``error``, the pickled value or exception, and the traceback of an error."""


def main() -> int:
    """Runs one call; exit code 1 when the function raised, after printing the exception."""
    sys.path.insert(0, os.getcwd())
    function: Callable[[Any], Any] = pickle.loads(Path(FUNCTION).read_bytes())
    item = pickle.loads(pickle.loads(Path(ITEMS).read_bytes())[int(os.environ["IRIS_TASK_INDEX"])])
    outcome = called(function, item)
    sys.stdout.write("".join(f"{line}\n" for line in written(outcome)))
    sys.stdout.flush()
    return 0 if outcome[0] == "value" else 1


def called(function: Callable[[Any], Any], item: Any) -> CallOutcome:
    """The outcome of one call; a value that cannot be pickled is an error."""
    try:
        value = function(item)
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        traceback.print_exc()
        return failed(error)
    try:
        return "value", cloudpickle.dumps(value), ""
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        return failed(TypeError(f"the result cannot be sent back: {error}"))


def failed(error: Exception) -> CallOutcome:
    """An exception as an outcome; of one that cannot be pickled its text is left."""
    trace = "".join(traceback.format_exception(error))
    try:
        return "error", cloudpickle.dumps(error), trace
    except Exception:  # noqa: BLE001 - pickling may raise anything
        return "error", b"", trace


def written(outcome: CallOutcome) -> Iterator[str]:
    """An outcome as lines: the number of lines, then each with the mark."""
    text = base64.b64encode(pickle.dumps(outcome)).decode()
    pieces = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    yield f"\n{MARK}{len(pieces)}"
    yield from (MARK + piece for piece in pieces)


if __name__ == "__main__":
    sys.exit(main())
