"""Schemathesis asks the gateway of a small cluster what its OpenAPI document allows and forbids."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster_on

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its own one: what is asked drains workers, and submits whatever the document allows."""
    with cluster_on(tmp_path / "cluster", "--workers", "1") as made:
        yield made


def ask(cluster: Cluster, directory: Path, *options: str) -> None:
    """Fails with what a run has found."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--no-color",
        "run",
        f"{cluster.url}/v1/openapi.json",
    ]
    command += [
        "--header",
        f"Authorization: Bearer {cluster.token}",
        "--exclude-checks",
        "positive_data_acceptance",
    ]
    command += ["--request-timeout", "20"]
    environ = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "tests.support.openapi_checks",
        "PYTHONPATH": str(ROOT),
    }
    found = subprocess.run(
        [*command, *options],
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.fail(found.stdout[found.stdout.find("FAILURES") :] + found.stderr, pytrace=False)


@pytest.mark.timeout(900)
def test_the_gateway_keeps_to_its_document(cluster: Cluster, tmp_path: Path):
    options = ("--phases", "examples,fuzzing", "--max-examples", "4", "--generation-deterministic")
    ask(cluster, tmp_path, *options)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_gateway_keeps_to_its_document_in_5000_cases(cluster: Cluster, tmp_path: Path):
    options = (
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "30",
        "--generation-database",
        "none",
    )
    ask(cluster, tmp_path, *options)
