"""One task of `Client.map`: reads its item, calls the function, prints the result between the lines of its output.

Runs as ``python -m iris_gateway.client.mapped`` in the directory that was sent along. Not in this room: the caller's
side (`mapping`).
"""

from __future__ import annotations

import base64
import os
import pickle
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iris_gateway.client.problems import BadAsk

FUNCTION = ".iris-function"
ITEMS = ".iris-items"
MAIN = "__iris_main__.py"
MARK = "iris-result:"
LOADING = "IRIS_MAP_LOADING"
_LINE = 48 * 1024


def main() -> int:
    """Exit code 1 when the function raised, after telling what."""
    sys.path.insert(0, os.getcwd())
    load_main()
    function: Callable[[Any], Any] = pickle.loads(Path(FUNCTION).read_bytes())
    item = pickle.loads(pickle.loads(Path(ITEMS).read_bytes())[int(os.environ["IRIS_TASK_INDEX"])])
    try:
        outcome = ("value", function(item))
    except Exception as error:  # noqa: BLE001 - whatever the caller's function raises is the caller's
        traceback.print_exc()
        outcome = ("error", error)
    sys.stdout.write("".join(f"{line}\n" for line in written(outcome)))
    sys.stdout.flush()
    return 0 if outcome[0] == "value" else 1


def load_main() -> None:
    """Have what the caller's script defined, without what it does when it is run, as `multiprocessing` has it."""
    if not Path(MAIN).exists():
        return
    module = types.ModuleType("__mp_main__")
    os.environ[LOADING] = MAIN
    try:
        module.__dict__.update(runpy.run_path(MAIN, run_name="__mp_main__"))
    finally:
        del os.environ[LOADING]
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def refuse_while_loading() -> None:
    """Raises BadAsk when a script is being read for what it defines: each task would submit it all over again."""
    if LOADING in os.environ:
        raise BadAsk("a script that maps must submit its jobs under `if __name__ == '__main__':`")


def written(outcome: tuple[str, object]) -> Iterator[str]:
    """An outcome as lines: how many, then each with the mark. What cannot be pickled is told as an error."""
    try:
        data = pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - pickling raises whatever the object's own methods raise
        data = pickle.dumps(("error", TypeError(f"the result cannot be sent back: {error}")))
    text = base64.b64encode(data).decode()
    pieces = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    yield f"\n{MARK}{len(pieces)}"
    yield from (MARK + piece for piece in pieces)


if __name__ == "__main__":
    sys.exit(main())
