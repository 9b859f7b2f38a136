"""docs/three-machines.md as a script: its commands run as they stand there, and do what its sentences state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.guide import blocks
from tests.support.machines import refusal
from tests.support.page_machines import COMPUTER, PageMachines, page_machines

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "three-machines.md"
ADDRESSES = {"m1": "10.0.0.1", "m2": "10.0.0.2", "m3": "10.0.0.3", COMPUTER: "10.0.0.9"}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[PageMachines]:
    if why := refusal():
        pytest.skip(f"no namespaces here: {why}")
    with page_machines(tmp_path, ADDRESSES) as made:
        yield made


def test_the_commands_of_the_page_make_a_cluster_that_survives_a_machine(machines: PageMachines):
    install, make, copy, agents, services, contexts, hello, without, workers, backup = (
        block for block in blocks(PAGE) if block.language == "sh"
    )

    def all_are_healthy() -> bool:
        return machines.run(workers)[COMPUTER].count(" healthy ") == 3

    for block in (install, make, copy, agents, services, contexts):
        machines.run(block)
    until(all_are_healthy, "three workers have registered")
    said = machines.run(hello)[COMPUTER]
    assert sorted(re.findall(r"hello from \w+", said)) == ["hello from m1", "hello from m2", "hello from m3"]

    keys = "for key in state scheduler gateway worker; do cat /etc/iris/$key.seed; done"
    said = machines.shells[COMPUTER].run(f"iris run --constraint hostname=m2 -- sh -c '{keys}' || true")
    assert re.findall(r"cat: /etc/iris/(\w+).seed: Permission denied", said) == ["state", "scheduler", "gateway"]

    machines.switch_off("m1")
    said = machines.run(without)[COMPUTER]
    assert re.search(r"name +/hello\n.*state +succeeded\n", said, re.DOTALL)
    assert re.findall(r"hello from m[23]\b", said) == re.findall(r"hello from \w+", said) != []

    machines.switch_on("m1")
    for block in (install, agents, services):
        machines.shells["m1"].run(block.script)
    until(all_are_healthy, "m1 is back")
    assert "3 jobs and 3 workers" in machines.run(backup)[COMPUTER]
