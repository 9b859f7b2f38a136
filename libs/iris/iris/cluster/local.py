"""A cluster for tests: it runs during a block, and ends with the process that started it.

    with LocalCluster(workers=1) as cluster:
        cluster.client.run(["true"]).result()

Out of scope: how a cluster is started (`launch`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from iris.client.client import Client
from iris.client.http.address import read_cluster, read_token
from iris.client.problems import ClientError
from iris.cluster.process import ISOLATED
from iris_service.child import end_with_parent
from iris_service.directories import let_pass, make_directory

_LOOK_S = 0.02
_READY = b"dashboard"


class NotStarted(ClientError):
    """The cluster did not start; the text is the output of `iris up`."""


class LocalCluster:
    """A cluster on loopback, of simulated hosts.

    Args:
        data: its data directory; by default a temporary one.
        workers: CPU hosts. worker_cpu: cores of every host, whatever this machine has.
        tpu: slices, e.g. ``["v5litepod-16x2"]``.
        config: an `iris.toml`.
        ready_s: how long the start may take.
        auth: want a token for each request; ``client`` has it, and `iris` finds it with
            ``environ``.

    Attributes:
        url: the gateway. client: a `Client` of it. environ: the environment with which `iris` finds
            it.
    """

    def __init__(
        self,
        *,
        data: Path | None = None,
        workers: int = 2,
        worker_cpu: float = 8,
        tpu: Sequence[str] = (),
        config: Path | None = None,
        ready_s: float = 300.0,
        auth: bool = True,
    ) -> None:
        self._temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="iris-")) if data is None else data.absolute()
        self._options = [
            "--http",
            "127.0.0.1:0",
            "--workers",
            str(workers),
            "--worker-cpu",
            f"{worker_cpu:g}",
        ]
        self._options += [word for slices in tpu for word in ("--tpu", slices)]
        self._options += ["--config", str(config)] if config else []
        self._options += [] if auth else ["--no-auth"]
        self._ready_s = ready_s
        self._up: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def client(self) -> Client:
        """Raises NotStarted before the start."""
        if self._client is None:
            raise NotStarted("the cluster has not been started")
        return self._client

    @property
    def url(self) -> str:
        return self.client.address.url

    @property
    def environ(self) -> dict[str, str]:
        return {**self._environ(), "IRIS_URL": self.url, "IRIS_DATA": str(self.data)}

    def start(self) -> None:
        """Return when the cluster is ready. Raises NotStarted."""
        make_directory(self.data, passed=True)
        if self._temporary:
            let_pass(self.data)
        given = self.data / "up.log"
        with open(given, "wb", opener=partial(os.open, mode=0o600)) as log:
            self._up = subprocess.Popen(
                [
                    sys.executable,
                    *ISOLATED,
                    "-m",
                    "iris.cli",
                    "up",
                    "--data",
                    str(self.data),
                    *self._options,
                ],
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent(),  # noqa: PLW1509 - nothing but one system call
            )
        while _READY not in given.read_bytes():
            if self._up.poll() is not None:
                raise NotStarted(given.read_text(errors="replace").strip())
            time.sleep(_LOOK_S)
        cluster = read_cluster(self.data)
        if cluster is None:
            raise NotStarted(f"the cluster on {self.data} has ended at once")
        self._client = Client(cluster.url, token=read_token(cluster.token_file) or None)

    def stop(self) -> None:
        """Stop it with its tasks; a temporary directory is deleted. Safe to call twice."""
        if self._up is not None:
            self._up.terminate()
            self._up.wait()
            self._up = None
        if self._client is not None:
            self._client.close()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _environ(self) -> dict[str, str]:
        """The environment of this process without variables of other clusters."""
        foreign = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
        return {**foreign, "IRIS_CLUSTER_READY_S": f"{self._ready_s:g}"}
