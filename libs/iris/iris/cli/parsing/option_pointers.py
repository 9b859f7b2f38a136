"""Names the option of a command line that gave a field which the gateway refused. Pure.

Out of scope: what is refused (`iris_core.admission.jobs`, `iris_core.admission.deployments`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import click

from iris_core.spec.option_table import field_words

_UNIT = re.compile(r"_s\Z")
_WORDS = {
    "name_prefix": "prefix",
    "environment/packages": "workdir",
    "bundle": "workdir",
    "resources/device": "tpu gpu",
}
"""Fields whose options are not called as they are."""


def option_of(pointer: str, command: click.Command, given: Collection[str] = ()) -> str:
    """``--scale-window`` of ``/scaling/window_s``, ``--type`` of ``?type``; the pointer itself when
    no option of the command gave it.

    ``given``: the parameters that were; of several that may have given the field, one of these has.
    """
    path = pointer.strip("/?").removeprefix("template/")
    options = {
        param.name: max(param.opts, key=len)
        for param in command.params
        if isinstance(param, click.Option)
    }
    options |= {word.lstrip("-"): word for word in options.values()}
    options |= {
        param.name: (param.name or "").upper()
        for param in command.params
        if isinstance(param, click.Argument)
    }
    named = [name for name in _names(path) if name in options]
    found = next((name for name in named if name in given), named[0] if named else "")
    return options[found] if found else pointer


def _names(path: str) -> Iterable[str]:
    """The parameters that may have given a field: of the field itself, then of what it is part
    of.
    """
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        part = "/".join(parts[:length])
        word = _UNIT.sub("", parts[length - 1])
        yield from (_WORDS.get(part) or field_words().get(part) or "").split()
        yield from filter(None, (_UNIT.sub("", part).replace("/", "_"), word))
        yield word.rstrip("s") + "s"
