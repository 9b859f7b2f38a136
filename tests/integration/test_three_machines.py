"""docs/three-machines.md as a script: its commands run as they stand there, and do what its
sentences state.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.cluster import until
from tests.support.guide import Block, blocks
from tests.support.needs import needs
from tests.support.page_machines import COMPUTER, PageMachines, page_machines

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs"
ADDRESSES = {"m1": "10.0.0.1", "m2": "10.0.0.2", "m3": "10.0.0.3", COMPUTER: "10.0.0.9"}
OF_FIVE = {**ADDRESSES, "m4": "10.0.0.4", "m5": "10.0.0.5"}
AS_ADMIN = "IRIS_NATS_NKEY_SEED=cluster/keys/admin.seed"
SAME = "every stream is as the settings say"
STOP_NATS = "pkill -x nats-server; while pgrep -x nats-server; do sleep 0.1; done"


@pytest.fixture
@needs("ip", "network namespaces")
def machines(tmp_path: Path) -> Iterator[PageMachines]:
    before = visible(Path("/root"))
    with page_machines(tmp_path, ADDRESSES) as made:
        yield made
    made_there = {name for disk in tmp_path.glob("*/disk/root") for name in visible(disk)}
    here = visible(Path("/root")) - before  # others may make something there meanwhile
    assert not here & made_there, "the machines have a /root of their own"


@pytest.fixture
@needs("ip", "network namespaces")
def five(tmp_path: Path) -> Iterator[PageMachines]:
    with page_machines(tmp_path, OF_FIVE) as made:
        stand_in = tmp_path / "bin" / "nats"
        stand_in.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.support.natscli "$@"\n'
        )
        stand_in.chmod(0o755)
        yield made


def visible(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith(".")}


def steps(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    return [block for block in blocks(DOCS / page) if block.language == "sh"]


def section(title: str) -> str:
    """The text of a section of the page about disasters."""
    page = (DOCS / "disaster-recovery.md").read_text()
    return page[page.index(f"## {title}\n") :].split("\n## ")[0]


def all_are_healthy(machines: PageMachines, workers: Block) -> bool:
    return machines.run(workers)[COMPUTER].count(" healthy ") == 3


def test_the_commands_of_the_page_make_a_cluster_that_survives_a_machine(machines: PageMachines):
    install, make, copy, agents, services, contexts, hello, without, workers, backup = steps(
        "three-machines.md"
    )
    for block in (install, make, copy, agents, services, contexts):
        machines.run(block)
    until(lambda: all_are_healthy(machines, workers), "three workers have registered")
    said = machines.run(hello)[COMPUTER]
    assert sorted(re.findall(r"hello from \w+", said)) == [
        "hello from m1",
        "hello from m2",
        "hello from m3",
    ]

    said = machines.shells[COMPUTER].run(
        "iris run --name greedy --memory 64MiB -- python3 -c 'bytearray(800 << 20)' 2>&1 || true"
    )
    assert "memory limit 64MiB reached" in said

    keys = "for key in state scheduler gateway provisioner worker; do cat /etc/iris/$key.seed; done"
    said = machines.shells[COMPUTER].run(
        f"iris run --constraint hostname=m2 -- sh -c '{keys}' || true"
    )
    unreadable = re.findall(
        r"cat: /etc/iris/(\w+).seed: (?:Permission denied|No such file or directory)", said
    )
    assert unreadable == [
        "state",
        "scheduler",
        "gateway",
        "provisioner",
        *(["worker"] if shutil.which("bwrap") else []),
    ]

    machines.switch_off("m1")
    said = machines.run(without)[COMPUTER]
    assert re.search(r"name +/hello\n.*state +succeeded\n", said, re.DOTALL)
    assert re.findall(r"hello from m[23]\b", said) == re.findall(r"hello from \w+", said) != []

    machines.switch_on("m1")
    for block in (install, agents, services):
        machines.shells["m1"].run(block.script)
    until(lambda: all_are_healthy(machines, workers), "m1 is back")
    assert "4 jobs and 3 workers" in machines.run(backup)[COMPUTER]


@pytest.mark.soak
def test_the_disaster_recovery_page_restores_onto_three_empty_servers(machines: PageMachines):
    install, make, copy, agents, services, contexts, hello, _, workers, backup = steps(
        "three-machines.md"
    )
    for block in (install, make, copy, agents, services, contexts):
        machines.run(block)
    until(lambda: all_are_healthy(machines, workers), "three workers have registered")
    machines.run(hello)
    computer = machines.shells[COMPUTER]
    computer.run("iris run -d --name kept --constraint hostname=m3 -- sleep 600")
    until(lambda: "running" in computer.run("iris ls --prefix kept"), "it runs")
    machines.run(backup)
    computer.run("iris run -d --name younger --constraint hostname=m3 -- sleep 600")
    until(
        lambda: machines.shells["m3"].run("pgrep -fxc 'sleep 600' || true").strip() == "2",
        "both run",
    )

    for block in steps("disaster-recovery.md"):
        said = machines.run(block)

    assert re.search(r"/kept +running", said[COMPUTER])
    assert "/younger" not in said[COMPUTER]
    until(
        lambda: machines.shells["m3"].run("pgrep -fxc 'sleep 600' || true").strip() == "1",
        "the younger is stopped",
    )
    shown = computer.run("iris show kept/0")
    assert re.findall(r"^ +(\d+) +(\w+)", shown, re.MULTILINE) == [("0", "running")], shown
    assert machines.run(hello)[COMPUTER].count("hello from m") == 3


def configure(
    machines: PageMachines, services: Block, *, replicas: int, servers: Sequence[str]
) -> None:
    """Write the servers and copies into the configuration, and restart the services one after the
    other.
    """
    url = ",".join(f"nats://{OF_FIVE[name]}:4222" for name in servers)
    edit = f"sed -i -e 's#^url = .*#url = \"{url}\"#' -e 's/^replicas = .*/replicas = {replicas}/'"
    machines.shells[COMPUTER].run(f"{edit} cluster/iris.toml")
    for name in ("m1", "m2"):
        machines.shells[name].run(f"{edit} /etc/iris/iris.toml")
        for service in ("state", "scheduler", "gateway"):
            machines.shells[name].run(
                f"pkill -f 'iris_{service}'; while pgrep -f 'iris_{service}'; do sleep 0.1; done"
            )
        machines.shells[name].run(services.script)
        machines.shells[COMPUTER].run(f"iris --retry-for 60s --context {name} worker list", 90)


def as_configured(machines: PageMachines) -> bool:
    """Whether each stream has the copies that the settings say, and all of them are there."""
    computer = machines.shells[COMPUTER]
    differences = computer.run(f"{AS_ADMIN} iris admin streams --config cluster/iris.toml")
    told = computer.run(f"{AS_ADMIN} iris doctor --config cluster/iris.toml --json || true")
    missing = re.findall(
        r'"code": ?"(server_down|server_behind|under_replicated|nats_unreachable)"', told
    )
    return SAME in differences and not missing


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_page_adds_two_nats_servers_and_removes_them(five: PageMachines):
    install, make, copy, agents, services, contexts, hello, *_ = steps("three-machines.md")
    for block in (install, make, copy, agents, services, contexts):
        five.run(block)
    computer = five.shells[COMPUTER]
    until(
        lambda: computer.run("iris --retry-for 60s worker list").count(" healthy ") == 3,
        "three workers",
    )
    five.run(hello)

    [add] = re.findall(r"^```\n(.*?)^```$", section("Add NATS servers"), re.MULTILINE | re.DOTALL)
    computer.run(add)
    start = agents.script.splitlines()[0]
    for name in ("m4", "m5"):
        address = OF_FIVE[name]
        computer.run(f"ssh root@{address} mkdir -p /etc/iris /var/lib/iris")
        computer.run(f"scp cluster/nats-{name}.conf root@{address}:/etc/iris/nats.conf")
        computer.run(f"scp cluster/accounts.conf root@{address}:/etc/iris")
        five.shells[name].run(f"{install.script}\n{start}")
    configure(five, services, replicas=5, servers=("m1", "m2", "m3", "m4", "m5"))
    until(lambda: as_configured(five), "each stream has five copies", 120)
    for name in ("m2", "m3"):
        five.shells[name].run(STOP_NATS)
    assert five.run(hello)[COMPUTER].count("hello from m") == 3, (
        "it goes on while two of five servers are down"
    )
    for name in ("m2", "m3"):
        five.shells[name].run(start)
    until(lambda: as_configured(five), "all copies are there", 120)

    configure(five, services, replicas=3, servers=("m1", "m2", "m3"))
    [lower] = re.findall(r"`(iris admin streams --apply [^`]*)`", section("Remove a NATS server"))
    computer.run(f"{AS_ADMIN} {lower}")
    [remove] = re.findall(
        r"^ +(nats .*) m5 --force$", section("Remove a NATS server"), re.MULTILINE
    )
    for name in ("m5", "m4"):
        five.shells[name].run(STOP_NATS)
        computer.run(f"{remove} {name} --force")
        until(lambda: as_configured(five), f"what {name} had is elsewhere", 120)
    five.shells["m3"].run(STOP_NATS)
    assert five.run(hello)[COMPUTER].count("hello from m") == 3, (
        "two of three servers are enough again"
    )
