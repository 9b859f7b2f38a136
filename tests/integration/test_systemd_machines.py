"""Three machines whose first process is systemd: the units as they stand, and what the pages say of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support import systemd as init
from tests.support.cluster import until
from tests.support.guide import Block, blocks
from tests.support.needs import needs
from tests.support.page_machines import COMPUTER, PageMachines, page_machines

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(900)]

README, PAGE = ROOT / "deploy" / "systemd" / "README.md", ROOT / "docs" / "disaster-recovery.md"
ADDRESSES = {"m1": "10.0.0.1", "m2": "10.0.0.2", "m3": "10.0.0.3", COMPUTER: "10.0.0.9"}
MACHINES, CONTROL_PLANE = ("m1", "m2", "m3"), ("m1", "m2")
START_S = 120
TASK = "sleep 600"


@pytest.fixture
@needs("ip", "network namespaces", "systemd in namespaces")
def machines(tmp_path: Path) -> Iterator[PageMachines]:
    with init.systemd(tmp_path) as first, page_machines(tmp_path, ADDRESSES, first) as made:
        yield made


def steps(page: str) -> list[Block]:
    return [block for block in blocks(ROOT / "docs" / page) if block.language == "sh"]


def restoring() -> list[list[str]]:
    """The blocks of "Restore under systemd", as lines."""
    text = PAGE.read_text()
    section = text[text.index("### Restore under systemd") : text.index("### Restore with Compose")]
    return [
        found.splitlines()
        for found in re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    ]


def install(machines: PageMachines) -> None:
    """By docs/three-machines.md, and the commands of deploy/systemd/README.md behind the
    installation.
    """
    path, make, copy = steps("three-machines.md")[:3]
    [store] = re.findall(r"nats-config .*?(--store \S+?)`", README.read_text())
    machines.run(path)
    machines.shells[COMPUTER].run(re.sub(r"--store \S+", store, make.script))
    machines.run(copy)
    [block] = blocks(README)
    lines = block.text.splitlines()
    copying, reloading = (
        next(i for i, line in enumerate(lines) if line.startswith(word))
        for word in ("cp", "systemctl")
    )
    enabling = {line.partition("#")[2].strip(): line for line in lines if "enable" in line}
    plane, host = enabling["on the control plane"], enabling["on each host that runs tasks"]
    for name in MACHINES:
        shell = machines.shells[name]
        until(
            lambda shell=shell: shell.run("systemctl list-units >/dev/null && echo up || true"),
            "systemd answers",
        )
        shell.run(f"cd {ROOT}/deploy/systemd; {lines[copying]}; cd /root; {lines[reloading]}")
    for name in MACHINES:  # each waits for a majority of servers
        machines.shells[name].run("systemctl enable --now iris-nats", START_S)
    for name in CONTROL_PLANE:
        machines.shells[name].run(plane.partition("#")[0].replace("iris-proxy", ""), START_S)
    for (
        name
    ) in MACHINES:  # whose control groups with limits are read-only, see `tests.support.systemd`
        machines.shells[name].run("echo IRIS_WORKER_REQUIRE_LIMITS=false > /etc/iris/worker.env")
        machines.shells[name].run(host, START_S)


def tasks_on(machines: PageMachines, name: str) -> int:
    return int(machines.shells[name].run(f"pgrep -fxc '{TASK}' || true"))


def healthy(machines: PageMachines) -> bool:
    return machines.shells[COMPUTER].run("iris --retry-for 60s worker list").count(" healthy ") == 3


def copies(machines: PageMachines) -> str:
    """What doctor says of NATS servers and copies; empty when nothing."""
    asked = "IRIS_NATS_NKEY_SEED=cluster/keys/admin.seed iris doctor --config cluster/iris.toml --json || true"
    said = machines.shells[COMPUTER].run(asked)
    return "".join(
        re.findall(
            r'"code": ?"(server_down|server_behind|under_replicated|nats_unreachable)"', said
        )
    )


def test_units_restore_a_backup_and_replace_a_server_by_the_pages(machines: PageMachines):
    install(machines)
    contexts, hello, *_, backup = (steps("three-machines.md")[number] for number in (5, 6, 9))
    machines.run(contexts)
    until(lambda: healthy(machines), "three workers have registered", START_S)
    computer = machines.shells[COMPUTER]
    computer.run(f"iris run -d --name kept --constraint hostname=m3 -- {TASK}")
    until(lambda: tasks_on(machines, "m3") == 1, "it runs")
    machines.run(backup)
    computer.run(f"iris run -d --name younger --constraint hostname=m3 -- {TASK}")
    until(lambda: tasks_on(machines, "m3") == 2, "both run")

    [stop], [stop_nats, *renew] = restoring()
    for name in CONTROL_PLANE:
        machines.shells[name].run(stop)
    for name in MACHINES:
        machines.shells[name].run(stop_nats, START_S)
    for name in MACHINES:
        machines.shells[name].run("\n".join(renew), START_S)
    [restore] = [block for block in steps("disaster-recovery.md") if "admin restore" in block.text]
    assert "restored: " in machines.run(restore)[COMPUTER]
    for name in CONTROL_PLANE:
        machines.shells[name].run("systemctl start iris-state", START_S)
    until(lambda: healthy(machines), "three workers have registered", START_S)
    until(lambda: tasks_on(machines, "m3") == 1, "the younger is stopped, the other one runs on")
    said = computer.run("iris ls")
    assert re.search(r"/kept +running", said)
    assert "/younger" not in said

    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith("| systemd |")]
    until(lambda: not copies(machines), "all copies are there", START_S)
    machines.shells["m2"].run("\n".join(re.findall(r"`(.*?)`", row)), START_S)
    until(lambda: not copies(machines), "m2 has fetched its copies", START_S)
    assert machines.run(hello)[COMPUTER].count("hello from m") == 3
