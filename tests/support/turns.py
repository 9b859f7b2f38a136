"""Samples: of many cases alike `make test` runs one in some, others at each commit, and `make soak` all of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache

import pytest

from tests.house.repository import ROOT


@cache
def commits() -> int:
    """How many there are, with which samples change; 0 where there is no history."""
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return int(counted.stdout or 0)


def in_turns(cases: Iterable[object], turns: int) -> list[object]:
    """The cases as parameters of a test: one in ``turns`` for `make test`, and all marked for `make soak`."""
    now = commits() % turns
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.sampled, *([] if at % turns == now else [pytest.mark.soak])],
        )
        for at, case in enumerate(cases)
    ]
