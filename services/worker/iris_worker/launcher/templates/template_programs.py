"""What clones of a template run: a script, or the call of a function.

The launcher sends this source to each template before that of template_process, so it imports as
little as that does.
Source: docs/design/calls.md#templates,
    docs/design/calls.md#reused-processes.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CALL = ".iris-call"


class Script:
    """``python FILE ARGUMENTS`` or ``python -m MODULE ARGUMENTS``."""

    result = b""

    def leave(self, call: dict[str, Any]) -> None:
        """It has no result."""

    def prepare(self, workdir: str) -> None:
        import site

        site.main()
        sys.path[:0] = [
            path for path in (workdir, *os.environ.get("PYTHONPATH", "").split(":")) if path
        ]

    def load(self) -> None:
        """The program of a call is read by the call."""

    def run(self, call: dict[str, Any]) -> int:
        words = list(call["command"][1:])
        if words[0] == "-m":
            import runpy

            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
            return 0
        sys.argv, path = words, os.path.abspath(words[0])
        sys.path[0] = os.path.dirname(path)
        main = type(sys)("__main__")
        main.__file__ = words[0]
        sys.modules["__main__"] = main
        with open(path, "rb") as file:
            code = compile(file.read(), words[0], "exec")
        exec(code, main.__dict__)
        return 0


class Function:
    """The call of a function, by the runner that the client has sent along. ``code``: as in
    `Template`. ``result``: of a call.
    """

    function: Any = None
    result = b""

    def __init__(self, code: dict[bytes, Any]) -> None:
        self.code = code

    def prepare(self, workdir: str) -> None:
        sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
        module = type(sys)("iris_call")
        sys.modules["iris_call"] = module
        self.runner = module.__dict__
        exec(compiled_file(self.code, f"{CALL}/run.py"), self.runner)
        self.runner["prepare_path"](workdir)

    def load(self) -> None:
        load = self.runner["load_function"]
        try:
            self.function = load(f"{CALL}/function")
        except Exception:  # noqa: BLE001 - each call says so, with the traceback of its own try
            self.function = None

    def run(self, call: dict[str, Any]) -> int:
        here = f"{call['workdir']}/{CALL}"
        function = self.function or (lambda: self.runner["load_function"](f"{here}/function"))
        if "outcome_of" not in self.runner:
            self.result = b""
            return int(self.runner["run_call"](function, f"{here}/items", 0, here))
        code, self.result = self.runner["outcome_of"](function, f"{here}/items", 0, here)
        return int(code)

    def leave(self, call: dict[str, Any]) -> None:
        """Put the result into its file."""
        if self.result:
            self.runner["leave"](self.result, f"{call['workdir']}/{CALL}")


def compiled_file(known: dict[bytes, Any], path: str) -> Any:
    """A file as code; it is compiled by what has started this program."""
    with open(path, "rb") as file:
        source = file.read()
    if source not in known:
        known[source] = globals()["compiled"](source, path)
    return known[source]
