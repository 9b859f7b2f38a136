"""Runs Debian's Prometheus on the configuration of deploy/, and promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iris_service.child import end_with_parent
from tests.house.repository import ROOT
from tests.support.cluster import until
from tests.support.nats_config import free_ports

DEPLOYED = ROOT / "deploy" / "prometheus"
INSTALLED = bool(shutil.which("prometheus") and shutil.which("promtool"))
_START_S = 60


class Prometheus:
    """One that runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query. Raises AssertionError with Prometheus' own words when it
        refuses it.
        """
        return self._get(f"query?query={urllib.parse.quote(query)}")["result"]

    def targets(self) -> dict[str, str]:
        """The health of every address that is scraped."""
        found = self._get("targets")["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in found}

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}", timeout=60) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{path}: {refused.read().decode()}") from refused


@contextmanager
def prometheus_of(targets: Mapping[str, Sequence[str]], directory: Path) -> Iterator[Prometheus]:
    """A Prometheus with the rules of deploy/, which scrapes ``targets`` (job: addresses) each
    second.

    What has not answered within that time has no series until its next answer.
    """
    directory.mkdir()
    config = (DEPLOYED / "prometheus.yml").read_text().replace("15s", "1s")
    (directory / "prometheus.yml").write_text(config)
    shutil.copy(DEPLOYED / "alerts.yml", directory)
    (directory / "targets").mkdir()
    groups = [
        {"labels": {"job": job}, "targets": list(addresses)} for job, addresses in targets.items()
    ]
    (directory / "targets" / "iris.json").write_text(json.dumps(groups))
    [port] = free_ports(1)
    given = {
        "config.file": directory / "prometheus.yml",
        "storage.tsdb.path": directory / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["prometheus", *(f"--{key}={value}" for key, value in given.items())],
            stdout=output,
            stderr=output,
            preexec_fn=end_with_parent(),  # noqa: PLW1509 - forks from the main thread only
        )
    try:
        running = Prometheus(f"http://127.0.0.1:{port}")
        until(lambda: _answers(port, process, log), "Prometheus is ready", _START_S)
        until(
            lambda: set(running.targets().values()) == {"up"}, "every target is scraped", _START_S
        )
        yield running
    finally:
        process.terminate()
        process.wait(_START_S)


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def promtool(*words: object) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        ["promtool", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )


def has_number(series: list[dict[str, Any]]) -> bool:
    """Whether an answer holds a value that a graph can show."""
    return any(sample["value"][1] != "NaN" for sample in series)
