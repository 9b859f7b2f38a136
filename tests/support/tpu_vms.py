"""TPU VMs that are workers on this machine: each boots by the startup script that it was given, with
its own metadata server, and what its systemd would start is started here.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from iris_core.placement.topology import topology_of
from tests.support.cluster import environment

_PROGRAMS = {
    "systemctl": "exit 0",
    "useradd": "exit 0",
    "id": "exit 0",
    "python3": """mkdir -p "$3/bin"; printf '#!/bin/sh\\n' > "$3/bin/pip"; chmod +x "$3/bin/pip" """,
}


class TpuVms:
    """The VMs of all nodes of one cloud.

    Args:
        root: a directory for theirs. hardware: settings of ``[worker]``, ``key=value``: what a VM
            has, where this machine has something else.

    Attributes:
        booted: the nodes whose VMs have booted, in that order.
    """

    def __init__(self, root: Path, *hardware: str) -> None:
        self._root = root
        self._hardware = hardware
        self._vms: dict[str, list[_Vm]] = {}
        self.booted: list[str] = []

    def start(self, name: str, node: dict[str, Any]) -> None:
        topology = topology_of(node["acceleratorType"])
        assert topology is not None
        place = self._root / f"{name}.{len(self.booted)}"
        self.booted.append(name)
        self._vms[name] = [
            _Vm(place / str(number), _instance(name, node, number), self._hardware)
            for number in range(topology.vm_count)
        ]

    def stop(self, name: str) -> None:
        for vm in self._vms.pop(name, []):
            vm.stop()

    def stop_all(self) -> None:
        for name in list(self._vms):
            self.stop(name)


def _instance(name: str, node: dict[str, Any], number: int) -> dict[str, Any]:
    """What the metadata server of a VM says."""
    spot = bool(node.get("schedulingConfig", {}).get("spot"))
    variant = node["acceleratorType"]
    return {
        "zone": "projects/1234/zones/us-central2-b",
        "scheduling": {"preemptible": "TRUE" if spot else "FALSE"},
        "preempted": "FALSE",
        "maintenanceEvent": "NONE",
        "attributes": {
            **node["metadata"],
            "accelerator-type": variant,
            "agent-worker-number": str(number),
            "tpu-env": f"ACCELERATOR_TYPE: '{variant}'\nNODE_ID: '{name}'\n",
        },
    }


class _Vm:
    """One VM: it boots in a thread of its own."""

    def __init__(self, root: Path, instance: dict[str, Any], hardware: tuple[str, ...]) -> None:
        self._root = root
        self._instance = instance
        self._hardware = hardware
        self._worker: subprocess.Popen[bytes] | None = None
        self._is_gone = False
        self._lock = threading.Lock()
        self._server = _serve(instance)
        self._booting = threading.Thread(target=self._boot)
        self._booting.start()

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _boot(self) -> None:
        programs = self._root / "programs"
        programs.mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        script = self._root / "startup-script"
        script.write_text(self._instance["attributes"]["startup-script"])
        script.chmod(0o755)
        environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "STARTUP_ROOT": str(self._root),
            "STARTUP_METADATA": f"{self._url}/computeMetadata/v1",
        }
        with (self._root / "log").open("ab") as log:
            booted = subprocess.run(
                [script], env=environ, stdout=log, stderr=log, timeout=120, check=False
            )
            with self._lock:
                if booted.returncode == 0 and not self._is_gone:
                    self._start(log.fileno())

    def _start(self, log: int) -> None:
        """What the unit does."""
        etc = self._root / "etc/iris"
        given = [
            f"nats.nkey_seed={etc / 'worker.seed'}",
            f"worker.data={self._root / 'data'}",
            f"worker.metadata_url={self._url}",
            *(f"worker.{setting}" for setting in self._hardware),
        ]
        argv = [sys.executable, "-P", "-m", "iris_worker", "--config", str(etc / "iris.toml")]
        argv += [word for setting in given for word in ("--set", setting)]
        own = dict(
            line.split("=", 1) for line in (etc / "worker.env").read_text().splitlines() if line
        )
        self._worker = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment(), **own},
            start_new_session=True,
        )

    def stop(self) -> None:
        """It is gone at once, with all that ran there."""
        with self._lock:
            self._is_gone = True
            if self._worker is not None:
                os.killpg(self._worker.pid, signal.SIGKILL)
                self._worker.wait()
        threading.Thread(target=self._forget).start()

    def _forget(self) -> None:
        self._booting.join()
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._root / "data", ignore_errors=True)


class _Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed."""


def _serve(instance: dict[str, Any]) -> _Quiet:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("/computeMetadata/v1/instance/")[2]
            if path.startswith("?"):
                body = json.dumps(instance).encode()
            else:
                body = instance["attributes"].get(path.removeprefix("attributes/"), "").encode()
            self.send_response(200 if body else 404)
            self.send_header("ETag", "1")
            self.send_header("Metadata-Flavor", "Google")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = _Quiet(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
