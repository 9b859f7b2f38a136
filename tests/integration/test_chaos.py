"""A short `make chaos`: real kills, real partitions, LOST workers, and no finding at the end."""

import os
import re
import subprocess
import sys

import pytest

from iris_service.child import end_with_parent
from tests.chaos.__main__ import NO_TEMPLATES
from tests.house.repository import ROOT

pytestmark = pytest.mark.integration


def chaos(*options: str) -> str:
    """What it prints; its own complaint is the failure. It ends when pytest does, whose time limit
    may be over.
    """
    words = [sys.executable, "-m", "tests.chaos", *options]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=end_with_parent()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.needs("bwrap", "ip")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("network", ["auto", "proxies"])
def test_kills_and_partitions_lose_nothing_and_double_nothing(network):
    said = chaos("--seconds", "7", "--slices", "1", "--seed", "11", "--network", network)
    assert "partitions by " in said
    assert "lost 0, doubled 0, wrong 0, stuck 0" in said
    assert re.search(r"^(cut|deaf|mute|slow) worker long", said, re.MULTILINE)
    for fault in (
        "kill -9 busy worker",
        "stop worker",
        "lose orders",
        "freeze worker past its orders",
    ):
        assert re.search(rf"^{fault} ", said, re.MULTILINE)
    assert re.search("^kill -9 launcher ", said, re.MULTILINE)
    assert bool(os.geteuid()) == (NO_TEMPLATES in said)  # an ordinary user's sandbox clones none
    assert (NO_TEMPLATES in said) != bool(re.search("^kill -9 template ", said, re.MULTILINE))
    for fault in (
        "kill -9 copy",
        "fail probe",
        "kill -9 proxy",
        "stop proxy",
        "(cut|deaf|mute|slow) proxy long",
    ):
        assert re.search(rf"^{fault} ", said, re.MULTILINE)
    for what in ("state", "worker", "scheduler", "gateway", "proxy"):
        assert re.search(rf"^set clock of {what} ", said, re.MULTILINE)
    assert re.search(r"^maps: .* large( with reuse)? \d", said, re.MULTILINE)
    assert float(re.search(r"billed: (\d+) CPU seconds", said)[1]) > 0
    assert int(re.search(r"requests: .* (\d+) answered by a route", said)[1]) > 0
    assert int(re.search(r"deployments: create (\d+)", said)[1]) > 0
    assert int(re.search(r"adopted: (\d+) attempts", said)[1]) > 0
    assert int(re.search(r"workers: (\d+) became LOST", said)[1]) > 0
    assert int(re.search(r"output: (\d+) lines checked", said)[1]) > 0
