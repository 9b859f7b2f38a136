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


def main() -> int:
    """Runs one call; exit code 1 when the function raised, after printing the exception."""
    sys.path.insert(0, os.getcwd())
    function: Callable[[Any], Any] = pickle.loads(Path(FUNCTION).read_bytes())
    item = pickle.loads(pickle.loads(Path(ITEMS).read_bytes())[int(os.environ["IRIS_TASK_INDEX"])])
    try:
        outcome = ("value", function(item))
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        traceback.print_exc()
        outcome = ("error", error)
    sys.stdout.write("".join(f"{line}\n" for line in written(outcome)))
    sys.stdout.flush()
    return 0 if outcome[0] == "value" else 1


def written(outcome: tuple[str, object]) -> Iterator[str]:
    """An outcome as lines: the number of lines, then each with the mark. A value that cannot be pickled is reported as
    an error.
    """
    try:
        data = cloudpickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        data = pickle.dumps(("error", TypeError(f"the result cannot be sent back: {error}")))
    text = base64.b64encode(data).decode()
    pieces = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    yield f"\n{MARK}{len(pieces)}"
    yield from (MARK + piece for piece in pieces)


if __name__ == "__main__":
    sys.exit(main())
