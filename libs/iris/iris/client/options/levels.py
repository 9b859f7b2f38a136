"""Reads the attributes by which the tasks of a gang are placed together."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import cast, get_args

from iris.client.problems import InvalidOption
from iris_core.spec.jobs import Level, LevelMode

_MODES = get_args(LevelMode)


def read_levels(given: str | Sequence[str | Level] | None) -> str | tuple[Level, ...] | None:
    """One attribute, or levels of the topology, each ``rack`` or ``rack:preferred``, innermost
    first; None: no gang.

    Raises InvalidOption.
    """
    if not given:
        return None
    levels = tuple(map(_level, [given] if isinstance(given, str) else given))
    return levels[0].key if len(levels) == 1 and levels[0].mode == "required" else levels


def _level(given: object) -> Level:
    if isinstance(given, Level):
        return given
    if not isinstance(given, str):
        raise InvalidOption(
            f"group_by: {given!r} is not an attribute; write rack, or rack:preferred"
        )
    key, _, mode = given.rpartition(":")
    if key and mode in _MODES:
        return Level(key, cast(LevelMode, mode))
    if key and (near := get_close_matches(mode, _MODES, n=1)):
        raise InvalidOption(
            f"group_by: {given!r} is not KEY or KEY:MODE; did you mean {key}:{near[0]}?"
        )
    return Level(given)
