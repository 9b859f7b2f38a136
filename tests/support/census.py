"""Counts the objects that can be reached from given roots, so that a test can name what has
grown.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

import msgspec
from sortedcontainers import SortedDict, SortedKeyList, SortedList

OURS = ("iris_", "prometheus_client")
_SEQUENCES = (list, tuple, set, frozenset, deque, SortedList, SortedKeyList)


def census(apart: Iterable[object] = (), **roots: object) -> Counter[str]:
    """The entries of all containers below these objects, by the path that leads to them.

    Entries of one container share a path, so that what is held for each job counts together. Looked
    into are our own objects, and whatever stands in a container; the globals of our modules, and
    what their caches hold, count too. What is ``apart`` is not looked into.
    """
    found: Counter[str] = Counter()
    modules = {name: module for name, module in sys.modules.items() if name.startswith(OURS[0])}
    seen = {id(one): one for one in apart}
    for name, root in {**roots, **modules}.items():
        _count(root, name, found, seen)
    return found


def grown(
    before: Mapping[str, int], after: Mapping[str, int], by: int
) -> dict[str, tuple[int, int]]:
    """What holds so many entries more now: how many it held, and holds."""
    return {
        path: (before.get(path, 0), now)
        for path, now in after.items()
        if now >= before.get(path, 0) + by
    }


def _count(root: object, name: str, found: Counter[str], seen: dict[int, object]) -> None:
    left = [(name, root)]
    while left:
        path, one = left.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one  # so that no other object has its id meanwhile
        if isinstance(one, dict | SortedDict):
            found[path] += len(one)
            left += [(f"{path}[]", value) for value in one.values()]
        elif isinstance(one, _SEQUENCES):
            found[path] += len(one)
            left += [(f"{path}[]", value) for value in one]
        elif isinstance(one, array | bytearray):
            found[path] += len(one)
        else:
            left += [(f"{path}.{attribute}", value) for attribute, value in _attributes(one)]


def _attributes(one: object) -> Iterator[tuple[str, object]]:
    """What an object of ours holds; of a module its globals that are no functions and classes."""
    if isinstance(one, ModuleType):
        for name, value in vars(one).items():
            if callable(getattr(value, "cache_info", None)):
                yield name, [None] * value.cache_info().currsize
            elif not (name.startswith("__") or callable(value) or isinstance(value, ModuleType)):
                yield name, value
    elif type(one).__module__.startswith(OURS) and not isinstance(one, type):
        names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
        if isinstance(one, msgspec.Struct):
            names = list(type(one).__struct_fields__)
        for name in {*names, *getattr(one, "__dict__", ())}:
            if hasattr(one, name):
                yield name, getattr(one, name)
