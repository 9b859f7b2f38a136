"""Services under systemd: their notifications, and units that systemd accepts."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iris.cluster.settings import KEPT_SERVICES
from iris_service.notify import ALIVE, READY, STOPPING
from tests.house.repository import ROOT
from tests.support.cluster import until
from tests.support.fleet import Fleet, fleet

pytestmark = pytest.mark.integration

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
INTERVAL_S = 0.2
EXPOSURE = {"iris-worker": 56, "iris-nats": 20}
"""At most, in tenths, by `systemd-analyze security`; tasks inherit the worker's limits, and it makes control groups. The
rest: 15.
"""
NEWER = re.compile(r"Unknown key( name)? 'DelegateSubgroup'")
"""What systemd before 254 says of the unit, and does without."""
needs_systemd = pytest.mark.needs("systemd-analyze")


@contextmanager
def told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that services started in the block take for systemd's, with a watchdog."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(directory / "notify"))
        listening.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(directory / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", str(int(INTERVAL_S * 2e6)))
        yield listening
        monkeypatch.delenv("NOTIFY_SOCKET")
        monkeypatch.delenv("WATCHDOG_USEC")


def start(services: Fleet, name: str) -> None:
    if name == "worker":
        services.add_worker("w0")
    else:
        services.add(name, name, *(["proxy.http=127.0.0.1:0"] if name == "proxy" else []))


def until_silent(listening: socket.socket) -> Iterator[bytes]:
    """What arrives until nothing has for several intervals."""
    listening.settimeout(5 * INTERVAL_S)
    with contextlib.suppress(TimeoutError):
        while True:
            yield listening.recv(100)


def test_every_service_says_that_it_is_ready_alive_and_stopping(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with fleet(nats_url, tmp_path) as services:
        for name in (*KEPT_SERVICES, "worker"):
            (tmp_path / f"s-{name}").mkdir()
            with told(tmp_path / f"s-{name}", monkeypatch) as listening:
                start(services, name)
                assert [listening.recv(100) for _ in range(3)] == [READY, ALIVE, ALIVE], name
        member = services.of("proxy")[0]
        assert member.terminate() == 0


def test_a_service_reports_its_stop_and_is_silent_while_its_loop_hangs(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with fleet(nats_url, tmp_path) as services, told(tmp_path, monkeypatch) as listening:
        start(services, "state")
        process = services.members[0].process
        assert process is not None
        assert listening.recv(100) == READY
        process.send_signal(signal.SIGSTOP)
        assert set(until_silent(listening)) <= {ALIVE}
        process.send_signal(signal.SIGCONT)
        listening.settimeout(20)
        assert listening.recv(100) == ALIVE
        process.send_signal(signal.SIGTERM)
        heard = [listening.recv(100)]
        while heard[-1] == ALIVE:
            heard.append(listening.recv(100))
        assert heard[-1] == STOPPING
        assert process.wait(60) == 0


def test_a_service_that_is_not_ready_does_not_say_so(
    nats_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A scheduler without a state service has no records."""
    with fleet(nats_url, tmp_path) as services, told(tmp_path, monkeypatch) as listening:
        scheduler = services.begin("scheduler", "scheduler")
        until(lambda: b"metrics are served" in scheduler.log.read_bytes(), "the scheduler runs")
        assert list(until_silent(listening)) == []


@needs_systemd
def test_systemd_accepts_the_units(tmp_path: Path):
    programs = str(Path(sys.executable).parent)
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/iris/bin", programs))
    units = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if not NEWER.search(line)]
    assert (done.returncode, said) == (0, [])


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_leaves_little_exposed(unit: Path):
    threshold = EXPOSURE.get(unit.stem, 15)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={threshold}", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:]
