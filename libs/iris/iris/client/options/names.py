"""Refuses unknown options of the SDK's methods, with the nearest known name.

Out of scope: the values of options (`options.jobs`, `options.deployments`).
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def takes(options: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a method raise TypeError for a keyword that is neither a parameter of it nor in the typed
    dictionary.
    """

    def checked(method: Callable[P, T]) -> Callable[P, T]:
        known = {*options.__annotations__, *inspect.signature(method).parameters} - {
            "self",
            "options",
        }

        @functools.wraps(method)
        def call(*words: P.args, **given: P.kwargs) -> T:
            refuse_unknown(method.__name__, given, known)
            return method(*words, **given)

        return call

    return checked


def refuse_unknown(method: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for each name that is not known: ``run() has no option 'nane'; did you mean
    'name'?``.
    """
    names = sorted(known)
    mistakes = [_mistake(method, name, names) for name in given if name not in names]
    if mistakes:
        raise TypeError("\n".join(mistakes))


def _mistake(method: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{method}() has no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
