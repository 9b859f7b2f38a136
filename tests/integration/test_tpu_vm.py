"""The startup script of a TPU VM, with a metadata server on loopback and programs that record their
calls.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("curl"),
]

SCRIPT = ROOT / "deploy" / "tpu-vm" / "startup.sh"
VM = {
    "attributes/tpu-env": "ACCELERATOR_TYPE: 'v4-16'\nNODE_ID: 'train-0'\nZONE: 'us-central2-b'\n",
    "attributes/agent-worker-number": "1",
    "attributes/iris-config": '[nats]\nurl = "nats://10.0.0.2:4222"\n',
    "attributes/iris-nkey": "SUAEXAMPLE",
    "attributes/iris-wheels": "/opt/wheels",
    "attributes/iris-version": "0.1.0",
}


class Machine:
    """A VM: its metadata, its root directory, and what its programs were called with."""

    def __init__(self, root: Path, url: str, metadata: dict[str, str]) -> None:
        self.root = root
        self.metadata = metadata
        self._calls = root / "calls"
        programs = root / "programs"
        programs.mkdir()
        for name, text in {
            "systemctl": f'echo "systemctl $*" >> {self._calls}',
            "useradd": f'echo "useradd $*" >> {self._calls}',
            "id": "exit 1",
            "python3": f"""
                echo "python3 $*" >> {self._calls}; mkdir -p "$3/bin"
                printf '#!/bin/sh\\necho "pip $* from ${{PIP_FIND_LINKS:-index}}" >> {self._calls}\\n' > "$3/bin/pip"
                printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' > "$3/bin/python"
                chmod +x "$3"/bin/*""",
        }.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        self.environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "STARTUP_ROOT": str(root),
            "STARTUP_METADATA": url,
        }
        self.script = root / "startup.sh"
        for source in (SCRIPT, ROOT / "deploy" / "systemd" / "iris-worker.service"):
            shutil.copy(source, root)

    def start(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.script], env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )

    def calls(self) -> list[str]:
        """Since the last time."""
        found = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    metadata = dict(VM)

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = metadata.get(self.path.removeprefix("/instance/"))
            allowed = self.headers.get("Metadata-Flavor") == "Google"
            self.send_response(403 if not allowed else 404 if value is None else 200)
            self.end_headers()
            if allowed and value is not None:
                self.wfile.write(value.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield Machine(tmp_path, f"http://127.0.0.1:{server.server_port}", metadata)
    server.shutdown()
    server.server_close()
    serving.join()


def test_a_vm_becomes_the_worker_that_its_metadata_says(machine: Machine):
    done = machine.start()
    assert done.returncode == 0, done.stderr
    assert (machine.root / "etc/iris/worker.env").read_text() == "IRIS_WORKER_ID=train-0-w1\n"
    assert (machine.root / "etc/iris/iris.toml").read_text() == VM["attributes/iris-config"]
    key = machine.root / "etc/iris/worker.seed"
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("SUAEXAMPLE", 0o600)
    calls = machine.calls()
    assert "pip install --quiet iris-control-plane[server]==0.1.0 from /opt/wheels" in calls
    assert "systemctl restart iris-worker.service" in calls


def test_the_user_of_the_unit_can_read_what_is_installed_and_no_secret(
    machine: Machine, wheels: Path
):
    machine.metadata["attributes/iris-wheels"] = str(wheels)
    (machine.root / "programs" / "python3").unlink()
    machine.environ["PIP_NO_DEPS"] = "1"  # its own wheel alone: nothing is downloaded
    done = subprocess.run(
        ["sh", "-c", 'umask 077 && exec "$0"', machine.script],
        env=machine.environ,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    places = [machine.root / "opt/iris", machine.root / "etc/iris"]
    files = [
        path for place in places for path in (place, *place.rglob("*")) if not path.is_symlink()
    ]
    closed = {
        path.name for path in files if ~path.stat().st_mode & (0o005 if path.is_dir() else 0o004)
    }
    assert closed == {"worker.seed", "worker.env"}
    assert (machine.root / "opt/iris/bin/iris").stat().st_mode & 0o001


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A directory with the wheel of this checkout."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "wheels"),
        ROOT,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path / "wheels"


def test_a_second_boot_installs_nothing_and_disturbs_no_worker(machine: Machine):
    machine.start()
    machine.calls()
    assert machine.start().returncode == 0
    calls = machine.calls()
    assert not any(call.startswith(("pip", "python3", "systemctl restart")) for call in calls)
    assert "systemctl start iris-worker.service" in calls


def test_a_changed_configuration_restarts_the_worker(machine: Machine):
    machine.start()
    machine.calls()
    machine.metadata["attributes/iris-config"] = "[worker]\ndetect = false\n"
    machine.start()
    assert "systemctl restart iris-worker.service" in machine.calls()


@pytest.mark.parametrize(("number", "name"), [("0", "v5e-0-0"), ("1", "v5e-0-1")])
def test_a_vm_of_a_provisioner_is_the_host_of_its_line(
    machine: Machine, number: str, name: str
) -> None:
    machine.metadata |= {
        "attributes/agent-worker-number": number,
        "attributes/iris-hosts": "v5e-0-0 SUFIRST\nv5e-0-1 SUSECOND\n",
        "attributes/iris-unit": "[Unit]\n",
        "attributes/iris-nats-ca": "CERTIFICATES\n",
    }
    (machine.root / "iris-worker.service").unlink()
    done = machine.start()
    assert done.returncode == 0, done.stderr
    etc = machine.root / "etc/iris"
    assert (etc / "worker.env").read_text() == f"IRIS_WORKER_ID={name}\n"
    key = etc / "worker.seed"
    seed = {"0": "SUFIRST", "1": "SUSECOND"}[number]
    assert (key.read_text(), key.stat().st_mode & 0o777) == (seed, 0o600)
    assert (etc / "nats-ca.pem").read_text() == "CERTIFICATES\n"
    unit = machine.root / "etc/systemd/system/iris-worker.service"
    assert unit.read_text() == "[Unit]\n"
    assert not any("SU" in call for call in machine.calls())


def test_a_host_without_a_key_needs_none(machine: Machine) -> None:
    machine.metadata["attributes/iris-hosts"] = "v5e-0-0\nv5e-0-1\n"
    assert machine.start().returncode == 0
    assert (machine.root / "etc/iris/worker.env").read_text() == "IRIS_WORKER_ID=v5e-0-1\n"
    assert not (machine.root / "etc/iris/worker.seed").exists()


def test_a_vm_beyond_the_hosts_of_its_slice_is_not_started(machine: Machine) -> None:
    machine.metadata["attributes/iris-hosts"] = "v5e-0-0 SUFIRST\n"
    done = machine.start()
    assert (done.returncode, "no worker for VM 1" in done.stderr) == (1, True)
    assert not any(call.startswith("systemctl") for call in machine.calls())


def test_without_wheels_the_index_is_used(machine: Machine):
    del machine.metadata["attributes/iris-wheels"], machine.metadata["attributes/iris-version"]
    assert machine.start().returncode == 0
    assert "pip install --quiet iris-control-plane[server] from index" in machine.calls()


def test_a_vm_that_does_not_know_what_it_is_is_not_started(machine: Machine):
    del machine.metadata["attributes/tpu-env"]
    done = machine.start()
    assert done.returncode == 1
    assert "does not say which TPU VM this is" in done.stderr
    assert not any(call.startswith("systemctl") for call in machine.calls())


def test_the_script_is_shell():
    assert subprocess.run(["sh", "-n", SCRIPT], check=False, timeout=20).returncode == 0


@pytest.mark.needs("shellcheck")
def test_the_script_is_plain_shell():
    done = subprocess.run(
        ["shellcheck", "--severity=warning", SCRIPT], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()
