"""The options of a map: those of its job, and how its calls are made. See also: `maps.mapping`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

from iris.client.problems import InvalidOption
from iris_core.spec.calls import Fresh
from iris_core.spec.option_table import JobOptions

ResultOrder = Literal["items", "done"]
LOOKAHEAD = 1000
"""Items of an iterator that are taken ahead of the calls that have ended, unless the map says
otherwise.
"""


class MapSettings(JobOptions, total=False):
    """The options of a map that have no part in the types of its function and its results."""

    chunksize: int
    retries: int
    order: ResultOrder
    progress: bool
    lookahead: int
    reuse: int
    fresh: Fresh


class KeywordSettings(MapSettings, total=False):
    """The same, with constant arguments, of which a type checker knows nothing."""

    kwargs: Mapping[str, Any] | None


class MapOptions(KeywordSettings, total=False):
    """The options of a map, and of its job, of which ``timeout`` is for each task.

    ``kwargs``: constant keyword arguments of each call. ``chunksize``: how many calls one task
    makes, one after the other. ``retries``: how often a task is tried again in which a call raised
    or whose process died. ``order``: of iteration and results: of the ``items``, or as calls are
    ``done``. ``return_exceptions``: results are exceptions instead of raising the first one.
    ``progress``: show it on the terminal or in the notebook. ``lookahead``: how many items of an
    iterator are taken ahead of the calls that have ended, 1,000 if left out. ``fresh``: what a task
        does not share with those before it: "memory" if left out, where its host can put the
        memory of a process back; "process", its process either. ``reuse``: how many tasks one
        process may make, one after the other, with what the earlier ones have left in its memory.
    """

    return_exceptions: bool


SHOWN = ("order", "return_exceptions", "progress")
"""The options of how results are shown; the others say what is called."""
_NUMBERS_OF_TASKS = ("replicas", "array", "each_line")


def check_options(options: Mapping[str, object]) -> None:
    """Raises InvalidOption for what a map does not take, and for wrong values that no host would
    see.
    """
    for name in _NUMBERS_OF_TASKS:
        if options.get(name) is not None:
            raise InvalidOption(f"a map takes no {name}: it has a task for each item")
    if {"retries", "max_retries_failure"} <= options.keys():
        raise InvalidOption("retries and max_retries_failure are the same: leave one of them out")
    if (order := options.get("order", "items")) not in (orders := get_args(ResultOrder)):
        raise InvalidOption(f"order must be one of {', '.join(orders)}, not {order!r}")
    if not isinstance(kwargs := options.get("kwargs") or {}, Mapping):
        raise InvalidOption(
            f"kwargs is a dictionary, not {kwargs!r}; write for example kwargs={{'scale': 2}}"
        )
    if (fresh := options.get("fresh", "memory")) not in (kinds := get_args(Fresh)):
        raise InvalidOption(f"fresh must be one of {', '.join(kinds)}, not {fresh!r}")
    for name, least in (("chunksize", 1), ("lookahead", 1), ("retries", 0)):
        if not isinstance(number := options.get(name, least), int) or number < least:
            raise InvalidOption(
                f"{name} must be a whole number of at least {least}, not {number!r}"
            )


def split_options(
    options: MapOptions, tasks: int = 0, most: int = 0
) -> tuple[MapOptions, JobOptions]:
    """How results are shown, and the options of a job of so many tasks, of which all may fail; 0:
    as given.

    ``most``: the tasks that an open job may get.
    """
    given: dict[str, Any] = dict(options)
    shown = {name: given.pop(name) for name in SHOWN if name in given}
    if "retries" in given:
        given["max_retries_failure"] = given.pop("retries")
    if tasks:
        given = {"max_task_failures": most or tasks, **given, "replicas": tasks}
    return cast("MapOptions", shown), cast("JobOptions", given)
