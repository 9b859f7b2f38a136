"""How long a command line keeps a person waiting: processor time, so that a busy machine does not fail it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from tests.support.answers import Said, answering, in_turn, job_view

HELP_S = 0.12
LS_S = 0.2


def best_of_five(*words: str) -> float:
    """Processor seconds of the quickest of five runs."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "iris_gateway.cli", *words],
            env={**os.environ, "XDG_CONFIG_HOME": "/nowhere"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(5))


def test_help_is_there_at_once():
    assert best_of_five("--help") < HELP_S


def test_a_listing_is_there_at_once():
    page = Said(200, {"items": [job_view()] * 50, "next_cursor": None})
    with answering(in_turn(page)) as server:
        assert best_of_five("ls", "--url", server.url) < LS_S
