"""A cluster in containers for the tests of a project: NATS and the services of Iris, each a
container of its own.

Needs `testcontainers` and a Docker daemon. `iris_in_containers` is a context manager for a fixture.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256

from testcontainers.community.nats import NatsContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import HttpWaitStrategy

from iris import Client

SETTINGS = {
    "IRIS_NATS_URL": "nats://nats:4222",
    "IRIS_GATEWAY_HTTP": "0.0.0.0:8080",
    "IRIS_GATEWAY_TOKEN_FILE": "/etc/iris/tokens",
    "IRIS_WORKER_GATEWAY_URL": "http://gateway:8080",
    "IRIS_WORKER_CPU_MILLIS": "2000",
    "IRIS_WORKER_MEMORY_BYTES": str(2 << 30),
}
"""The same for every service; each reads its own."""

NATS_CONFIG = b'http: 8222\nmax_payload: 8MB\njetstream { store_dir: "/data" }\n'


@contextmanager
def iris_in_containers(
    iris: str = "iris:local", nats: str = "nats:2.12-alpine", workers: int = 1
) -> Iterator[Client]:
    """A client of the cluster, as an admin, once its gateway answers. Images by name; they are
    there or are pulled.
    """
    token = secrets.token_urlsafe(32)
    tokens = f"tests admin {sha256(token.encode()).hexdigest()}\n"
    with ExitStack() as running:
        network = running.enter_context(Network())

        def service(name: str, alias: str) -> DockerContainer:
            return DockerContainer(
                iris,
                command=["server", name],
                env=SETTINGS,
                network=network,
                network_aliases=[alias],
                init=True,
            )

        server = NatsContainer(nats, network=network, network_aliases=["nats"]).with_command(
            "--config /nats.conf"
        )
        running.enter_context(server.with_copy_into_container(NATS_CONFIG, "/nats.conf"))
        running.enter_context(service("state", "state"))
        running.enter_context(service("scheduler", "scheduler"))
        for number in range(workers):
            running.enter_context(service("worker", f"worker-{number}"))
        gateway = service("gateway", "gateway").with_exposed_ports(8080)
        gateway.with_copy_into_container(tokens.encode(), SETTINGS["IRIS_GATEWAY_TOKEN_FILE"])
        running.enter_context(
            gateway.waiting_for(HttpWaitStrategy(8080, "/readyz").for_status_code(200))
        )
        url = f"http://{gateway.get_container_host_ip()}:{gateway.get_exposed_port(8080)}"
        yield running.enter_context(Client(url, token=token, retry_for_s=60))
