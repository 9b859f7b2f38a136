"""What the exception of a call says whose process left nothing."""

from __future__ import annotations

import pytest

from iris.client.maps.outcomes import death_of
from iris_core.views.streams import CallResultView

DIED = CallResultView(index=2, attempt=0, kind="died", data="", cause="exited", exit_code=7, signal=None, stored=False)


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (1, "exit code 7"),
        (4, "exit code 7; none of the 4 calls of this task has a result, not even those that had returned"),
    ],
)
def test_the_death_of_a_process_says_whose_results_are_lost(calls: int, words: str) -> None:
    """With `chunksize` results are stored together, and nothing said that the earlier ones were lost as well."""
    error = death_of("/m/2", DIED, calls)
    assert (error.exit_code, str(error)) == (7, f"/m/2 failed: {words}")
