"""docs/three-machines.md as a script: its commands run as they stand there, and do what its sentences state."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.guide import Block, blocks
from tests.support.machines import refusal
from tests.support.page_machines import COMPUTER, PageMachines, page_machines

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs"
ADDRESSES = {"m1": "10.0.0.1", "m2": "10.0.0.2", "m3": "10.0.0.3", COMPUTER: "10.0.0.9"}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[PageMachines]:
    if why := refusal():
        pytest.skip(f"no namespaces here: {why}")
    before = visible(Path("/root"))
    with page_machines(tmp_path, ADDRESSES) as made:
        yield made
    assert visible(Path("/root")) == before, "the machines have a /root of their own"


def visible(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith(".")}


def steps(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    return [block for block in blocks(DOCS / page) if block.language == "sh"]


def all_are_healthy(machines: PageMachines, workers: Block) -> bool:
    return machines.run(workers)[COMPUTER].count(" healthy ") == 3


def test_the_commands_of_the_page_make_a_cluster_that_survives_a_machine(machines: PageMachines):
    install, make, copy, agents, services, contexts, hello, without, workers, backup = steps("three-machines.md")
    for block in (install, make, copy, agents, services, contexts):
        machines.run(block)
    until(lambda: all_are_healthy(machines, workers), "three workers have registered")
    said = machines.run(hello)[COMPUTER]
    assert sorted(re.findall(r"hello from \w+", said)) == ["hello from m1", "hello from m2", "hello from m3"]

    keys = "for key in state scheduler gateway worker; do cat /etc/iris/$key.seed; done"
    said = machines.shells[COMPUTER].run(f"iris run --constraint hostname=m2 -- sh -c '{keys}' || true")
    unreadable = re.findall(r"cat: /etc/iris/(\w+).seed: (?:Permission denied|No such file or directory)", said)
    assert unreadable == ["state", "scheduler", "gateway", *(["worker"] if shutil.which("bwrap") else [])]

    machines.switch_off("m1")
    said = machines.run(without)[COMPUTER]
    assert re.search(r"name +/hello\n.*state +succeeded\n", said, re.DOTALL)
    assert re.findall(r"hello from m[23]\b", said) == re.findall(r"hello from \w+", said) != []

    machines.switch_on("m1")
    for block in (install, agents, services):
        machines.shells["m1"].run(block.script)
    until(lambda: all_are_healthy(machines, workers), "m1 is back")
    assert "3 jobs and 3 workers" in machines.run(backup)[COMPUTER]


@pytest.mark.soak
def test_the_disaster_recovery_page_restores_onto_three_empty_servers(machines: PageMachines):
    install, make, copy, agents, services, contexts, hello, _, workers, backup = steps("three-machines.md")
    for block in (install, make, copy, agents, services, contexts):
        machines.run(block)
    until(lambda: all_are_healthy(machines, workers), "three workers have registered")
    machines.run(hello)
    computer = machines.shells[COMPUTER]
    computer.run("iris run -d --name kept --constraint hostname=m3 -- sleep 600")
    until(lambda: "running" in computer.run("iris ls --prefix kept"), "it runs")
    machines.run(backup)
    computer.run("iris run -d --name younger --constraint hostname=m3 -- sleep 600")
    until(lambda: machines.shells["m3"].run("pgrep -fc 'sleep 600' || true").strip() == "2", "both run")

    for block in steps("disaster-recovery.md"):
        said = machines.run(block)

    assert re.search(r"/kept +running", said[COMPUTER])
    assert "/younger" not in said[COMPUTER]
    until(lambda: machines.shells["m3"].run("pgrep -fc 'sleep 600' || true").strip() == "1", "the younger is stopped")
    shown = computer.run("iris show kept/0")
    assert re.findall(r"^ +(\d+) +(\w+)", shown, re.MULTILINE) == [("0", "running")], shown
    assert machines.run(hello)[COMPUTER].count("hello from m") == 3
