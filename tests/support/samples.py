"""Samples: of many cases alike `make test` runs the same few at each commit, `make soak` all.

A sample that changed from commit to commit made one commit fail for a case that none before it had
run.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet


def one_in(number: int, cases: Iterable[object]) -> list[object]:
    """The cases as parameters of a test: the first of each ``number`` for `make test`, and all
    marked for `make soak`.
    """
    return [_marked(case, is_in=place % number == 0) for place, case in enumerate(cases)]


def _marked(case: object, *, is_in: bool) -> object:
    """A case with its marks of a sample, beside those that it has."""
    more = [pytest.mark.sampled, *([] if is_in else [pytest.mark.soak])]
    if isinstance(case, ParameterSet):
        return case._replace(marks=[*case.marks, *more])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=more)
