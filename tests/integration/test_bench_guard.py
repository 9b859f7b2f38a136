"""The guard of what a task costs finds a regression of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import guard, limits

pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.needs("strace"),
]

PLANTS = Path(__file__).parents[1] / "support" / "plants"


@pytest.mark.parametrize(
    ("plant", "found_by"),
    [
        ("calls", "launcher_calls_per_start"),
        ("processes", "launcher_forks_per_start"),
        ("cpu", "cpu_of_floor"),
        pytest.param(
            "sandboxes",
            "launcher_forks_per_start",
            marks=pytest.mark.needs("bwrap", "root"),
        ),
        ("commits", "commits_per_single_job"),
        ("messages", "messages_per_task"),
    ],
)
def test_a_regression_is_found_by_its_figure(plant: str, found_by: str):
    figures = guard.measure(PYTHON_PLANT=plant, PYTHONPATH=str(PLANTS))
    if found_by not in figures:
        pytest.skip(f"{found_by} cannot be measured here")
    wanted = limits.read()
    assert found_by in wanted.keys() - limits.passed(wanted, figures)
