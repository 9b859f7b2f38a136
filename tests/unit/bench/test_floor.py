"""The floor programs run: what rows are compared with in the same run."""

from __future__ import annotations

import httpx
import pytest

from benchmarks import floor


@pytest.mark.needs("cc")
def test_programs_in_c_reach_a_rate() -> None:
    isolated = floor.isolate(3)
    reached = [floor.spawn(3), floor.append(3), *([isolated] if isolated is not None else [])]
    assert all(one is not None and one.rate > 0 for one in reached)


@pytest.mark.parametrize("kind", ["starlette", "aiohttp"])
def test_bare_handlers_answer_every_path_with_a_kilobyte(kind: str) -> None:
    with floor.handler(kind) as url:
        assert len(httpx.get(f"{url}/v1/jobs").content) == 1024


def test_rounds_in_python_have_a_rate_and_take_cpu() -> None:
    reached = floor.interpreted(3)
    assert reached.rate > 0
    assert reached.cpu_s > 0
