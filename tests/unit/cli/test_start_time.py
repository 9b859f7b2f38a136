"""How long a command line keeps a person waiting: processor time, measured in starts of Python with
the libraries every command needs, because a busy machine makes both slower alike; and Ctrl-C
meanwhile. `make bench` has the seconds."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tests.support.answers import Said, answering, in_turn, job_view

HELP_STARTS = 2.0
LS_STARTS = 3.5
BARE = ("-c", "import click, msgspec")
IRIS = ("-m", "iris.cli")


def starts(*words: str) -> float:
    """Processor time of a command, in bare starts beside it; the quickest of five runs of each."""

    def once(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "XDG_CONFIG_HOME": "/nowhere"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(once(*IRIS, *words), once(*BARE)) for _ in range(5)]
    return min(took for took, _ in pairs) / min(bare for _, bare in pairs)


def test_help_is_there_at_once():
    assert starts("--help") < HELP_STARTS


def test_a_listing_is_there_at_once():
    page = Said(200, {"items": [job_view()] * 50, "next_cursor": None})
    with answering(in_turn(page)) as server:
        assert starts("ls", "--url", server.url) < LS_STARTS


def test_a_client_imports_what_maps_need_only_for_a_map():
    program = (
        "import sys, iris.client.client; print(*[one for one in sys.modules if '.maps.' in one])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ended.stdout == "\n"


@pytest.mark.parametrize("module", ["typing", "click", "iris.cli.errors"])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(module):
    interrupted = f"""
import _signal, sys
class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            _signal.raise_signal(_signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
from iris.cli import main
sys.exit(main(["ls"]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", interrupted], check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
