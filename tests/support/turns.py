"""Samples: of many cases alike `make test` runs one in some, others at each commit, and `make soak`
all of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from functools import cache, reduce
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from tests.house.repository import ROOT


@cache
def commits() -> int:
    """How many there are, with which samples change; 0 where there is no history, or no git."""
    words = ["git", "rev-list", "--count", "HEAD"]
    try:
        counted = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # there is none, or none that this user may run
        return 0
    return int(counted.stdout or 0)


def marks(place: int, turns: int) -> list[pytest.MarkDecorator]:
    """Those of a case that is run by one commit in ``turns``."""
    return [pytest.mark.sampled, *([] if (commits() - place) % turns == 0 else [pytest.mark.soak])]


def in_turns(cases: Iterable[object], turns: int) -> list[object]:
    """The cases as parameters of a test: one in ``turns`` for `make test`, and all marked for `make
    soak`.
    """
    return [_in_turn(case, marks(at, turns)) for at, case in enumerate(cases)]


def _in_turn(case: object, more: list[pytest.MarkDecorator]) -> object:
    """A case with these marks, beside those that it has."""
    if isinstance(case, ParameterSet):
        return case._replace(marks=[*case.marks, *more])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=more)


def takes_turns(place: int, turns: int = 3) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a test that one commit in ``turns`` runs; others with another ``place`` have the
    commits between.
    """

    def marked(test: Callable[..., Any]) -> Callable[..., Any]:
        return reduce(lambda made, mark: mark(made), marks(place, turns), test)

    return marked
