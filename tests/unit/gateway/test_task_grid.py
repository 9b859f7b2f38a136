"""The grid of a job's tasks: one glyph for each, or for several in a row of a large job."""

import re

import pytest

from iris_core.spec.index_set import IndexSet
from iris_core.spec.jobs import JobSpec
from iris_gateway.dashboard.drawings.task_grid import CELLS, task_grid


def cells(indexes: str, runs: list[tuple[str, int]], **spec: str) -> list[tuple[str, ...]]:
    job = JobSpec(name="/a", command=("x",), **spec)
    drawn = task_grid("j1", IndexSet.parse(indexes), runs, job.array_index)
    return re.findall(r'class="(\S+)" href="/tasks/j1/(\d+)" title="([^"]*)"', drawn)


def test_each_task_has_a_glyph_with_its_index_and_value() -> None:
    assert cells("0-2", [("succeeded", 2), ("failed", 1)], array="0-8:4") == [
        ("status-succeeded", "0", "0 (value 0): succeeded"),
        ("status-succeeded", "1", "1 (value 4): succeeded"),
        ("status-failed", "2", "2 (value 8): failed"),
    ]


def test_a_rerun_of_a_part_has_its_indexes() -> None:
    assert [cell[1] for cell in cells("1,3,5", [("running", 3)])] == ["1", "3", "5"]


@pytest.mark.parametrize("tasks", [CELLS + 1, 10_000])
def test_tasks_of_a_large_job_share_glyphs_that_show_what_failed(tasks: int) -> None:
    drawn = cells(f"0-{tasks - 1}", [("succeeded", 7), ("failed", 1), ("succeeded", tasks - 8)])
    assert len(drawn) <= CELLS
    failed = [cell for cell in drawn if cell[0] == "status-failed"]
    assert len(failed) == 1
    assert failed[0][1] == "7"
