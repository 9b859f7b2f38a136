"""Faults that are planted on three machines with TLS between services and NATS: each is
told by `iris doctor` within a minute, and gone after what doctor says to do.

Not in it: load and Prometheus meanwhile (`tests/integration/test_alerts.py` has what each alert fires
on), nginx before the gateways, an upgrade from an older build and back
(`tests/integration/test_rolling_restart.py`, `tests/containers/test_update.py`), a clock that is off and
a full disk, for which all machines have one kernel (`tests/integration/test_doctor.py`), and a power
cut of a whole machine (`tests/integration/test_three_machines.py`). The checkout must not change
meanwhile: doctor tells processes of two commits.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.test_three_machines import ADDRESSES, AS_ADMIN, all_are_healthy, steps
from tests.support.cluster import until
from tests.support.guide import Block
from tests.support.needs import needs
from tests.support.page_machines import COMPUTER, PageMachines, page_machines

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(1800)]

TLS = "/etc/iris/tls"
TOLD_S = 60
CURED_S = 120
NATS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
EDIT = "sed -i 's#^data = .*#&\\n{line}#' /etc/iris/iris.toml"
UNDO = "sed -i '/^{name} = /d' /etc/iris/iris.toml"


def end(what: str) -> str:
    """Commands that end a process of a machine at once, whatever it does."""
    return f"pkill -KILL -f '{what}'; while pgrep -f '{what}' > /dev/null; do sleep 0.1; done"


AGAIN = f"{end('iris_worker')}\nSTART_WORKER"


@dataclass(frozen=True)
class Fault:
    """Commands on machines, what doctor calls it, and the commands that it asks for.

    ``START_NATS``, ``START_WORKER`` and ``START_<service>`` stand for those of the page.
    """

    code: str
    planted: dict[str, str]
    cured: dict[str, str]


def of_worker(code: str, line: str) -> Fault:
    """A setting of m3's worker, which is started again with and without it."""
    name = line.partition(" ")[0]
    return Fault(
        code,
        {"m3": f"{EDIT.format(line=line)}\n{AGAIN}"},
        {"m3": f"{UNDO.format(name=name)}\n{AGAIN}"},
    )


def of_service(code: str, service: str, *machines: str) -> Fault:
    """A service that has ended on some machines."""
    return Fault(
        code,
        dict.fromkeys(machines, end(f"iris_{service}")),
        dict.fromkeys(machines, f"START_{service}"),
    )


BACKUP = f"{AS_ADMIN} iris admin backup iris.backup --nats " + ",".join(
    f"tls://{address}:4222" for address in NATS
)
FAULTS = {
    "no backup was ever made": Fault("no_backup", {}, {COMPUTER: f"NATS_CA {BACKUP}"}),
    "a NATS server has ended": Fault(
        "server_down", {"m3": end("nats-server")}, {"m3": "START_NATS"}
    ),
    "a NATS server hangs": Fault(
        "server_down", {"m3": "pkill -STOP -x nats-server"}, {"m3": "pkill -CONT -x nats-server"}
    ),
    "both schedulers have ended": of_service("no_scheduler", "scheduler", "m1", "m2"),
    "both schedulers hang": Fault(
        "no_scheduler",
        dict.fromkeys(("m1", "m2"), "pkill -STOP -f iris_scheduler"),
        dict.fromkeys(("m1", "m2"), "pkill -CONT -f iris_scheduler"),
    ),
    "the first state service has ended": of_service("no_standby", "state", "m1"),
    "the second state service has ended": of_service("no_standby", "state", "m2"),
    "all state services have ended": of_service("not_ready", "state", "m1", "m2"),
    "the gateway that is asked has ended": of_service("gateway_unreachable", "gateway", "m1"),
    "a worker has ended": Fault("worker_lost", {"m3": end("iris_worker")}, {"m3": "START_WORKER"}),
    "a worker advertises loopback": of_worker("loopback_address", 'address = "127.0.0.1"'),
    "a worker declares more memory than there is": of_worker(
        "overdeclared", "memory_bytes = 9000000000000"
    ),
}


@pytest.fixture
@needs("ip", "network namespaces", "openssl")
def machines(tmp_path: Path) -> Iterator[PageMachines]:
    with page_machines(tmp_path, ADDRESSES) as made:
        yield made


def make_certificate(machines: PageMachines) -> None:
    """One for all servers, which is its own authority, on each machine."""
    directory = machines.directory
    names = ",".join(f"IP:{address}" for address in NATS)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "90"]
    words += ["-subj", "/CN=nats", "-addext", f"subjectAltName={names}"]
    words += ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")]
    subprocess.run(words, check=True, capture_output=True)
    for shell in machines.shells.values():
        shell.run(f"install -d {TLS}; install -m 644 {directory}/cert.pem {TLS}")
    for name in ("m1", "m2", "m3"):
        machines.shells[name].run(f"install -m 600 {directory}/key.pem {TLS}")


def with_tls(make: Block) -> str:
    """The commands of the page that make keys and configuration, with TLS."""
    files = f"--tls-cert {TLS}/cert.pem --tls-key {TLS}/key.pem --tls-ca {TLS}/cert.pem"
    script = make.script.replace("--out cluster", f"--out cluster {files}")
    assert files in script
    script = script.replace("nats://", "tls://")
    return script.replace("replicas = 3", f'replicas = 3\ntls_ca = "{TLS}/cert.pem"')


def problems(machines: PageMachines) -> set[str]:
    """What doctor calls wrong, on the reader's computer."""
    said = machines.shells[COMPUTER].run(
        f"{AS_ADMIN} iris doctor --config cluster/iris.toml --json || true", TOLD_S
    )
    return {problem["code"] for problem in json.loads(said[said.index("{") :])["problems"]}


def test_each_fault_is_told_within_a_minute_and_gone_after_its_remedy(machines: PageMachines):
    install, make, copy, agents, services, contexts, hello, _, workers, _ = steps(
        "three-machines.md"
    )
    make_certificate(machines)
    machines.run(install)
    machines.shells[COMPUTER].run(with_tls(make))
    for block in (copy, agents, services, contexts):
        machines.run(block)
    machines.shells[COMPUTER].run("iris context use m1")
    until(lambda: all_are_healthy(machines, workers), "three workers have registered")
    assert machines.run(hello)[COMPUTER].count("hello from m") == 3

    start_nats, start_worker = agents.script.split("\n", 1)
    stand_for = {"START_NATS": start_nats, "START_WORKER": start_worker}
    stand_for |= {
        f"START_{name}": services.script.replace("state scheduler gateway", name)
        for name in ("state", "scheduler", "gateway")
    }
    stand_for["NATS_CA"] = f"IRIS_NATS_TLS_CA={TLS}/cert.pem"

    def run(commands: dict[str, str]) -> None:
        for name, script in commands.items():
            for word, text in stand_for.items():
                script = script.replace(word, text)
            machines.shells[name].run(script)

    usual = problems(machines) - {"no_backup"}
    for name, fault in FAULTS.items():
        assert fault.code not in usual, f"{name}: {fault.code} is told before"
        run(fault.planted)
        until(
            lambda code=fault.code: code in problems(machines),
            f"{name}: {fault.code} is told",
            TOLD_S,
        )
        run(fault.cured)
        until(
            lambda: problems(machines) <= usual | {"no_backup"},
            f"{name}: nothing is told after what doctor asks for",
            CURED_S,
        )
    until(lambda: all_are_healthy(machines, workers), "three workers are there")
    assert machines.run(hello)[COMPUTER].count("hello from m") == 3
