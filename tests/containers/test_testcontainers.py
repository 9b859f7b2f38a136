"""The fixture of docs/howto/testing.md, on images that are built here."""

from __future__ import annotations

import pytest

from tests.support.docker import NATS, Docker, product_image
from tests.support.images import nats_image

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

WAIT_S = 120


def test_a_cluster_in_containers_runs_a_job(docker: Docker, base_image: str):
    fixture = pytest.importorskip(
        "examples.testing.containers", reason="`make venv` installs testcontainers"
    )
    docker.image(NATS, nats_image(), 'ENTRYPOINT ["nats-server"]')
    with (
        product_image(base_image) as iris,
        fixture.iris_in_containers(iris, NATS) as client,
    ):
        job = client.run(["echo", "hello from a container"], name="hello", cpu=0.1)
        job.wait(WAIT_S)
        assert [line.line for line in job.logs()] == ["hello from a container"]
