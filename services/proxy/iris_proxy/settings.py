"""The section ``[proxy]`` of `iris.toml`. What one deployment allows is in its own specification
(`ProxyPolicy`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from iris_core.limits import HEAD_BYTES, NonNegativeInt, PositiveFloat, PositiveInt
from iris_service.listening import Network, read_address, read_networks
from iris_service.settings import BadSetting, ReadFile


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy listens and what it allows. Times in seconds, sizes in bytes.

    Attributes:
        http: `host:port` to listen at; port 0 takes a free one.
        tls_cert: PEM file of the certificate with its chain, for HTTPS; empty: plain HTTP. A
            changed file is read again within seconds.
        tls_key: PEM file of its key.
        port_file: where the address is written once the proxy is ready; ``IRIS_PORT_FILE`` says the
            same.
        discovery_file: where the last discovery is kept, which a proxy that starts while the bus is
            away serves; empty: nowhere, and it listens once the bus has answered. Several proxies
            may share it.
        token_file: the gateway's; a bearer token that is in it is not passed on to a service.
        oidc_issuer: the gateway's; a token of this issuer for `oidc_audience` is not passed on to a
            service.
        oidc_audience: the gateway's; a token for a service's own audience is passed on.
        trusted: networks of proxies in front of this one, whose ``X-Forwarded-*`` is believed, e.g.
            ``10.0.0.0/8``.
        head_s: timeout of a request's head.
        idle_s: how long a connection without a request stays open, to clients and to routes.
        head_bytes: size of a request's head.
        max_connections: of clients that each process serves. For one more, one that has been idle
            for a second is closed; where none has, its request is answered 503. Three quarters of
            them are for requests to deployments of one user. At most half of the process'
            descriptors less 128; a lower limit is logged at the start.
        queue_requests: of one deployment that may wait for a route with room.
        wake_s: how long a request may wait for the first route of a deployment that was scaled to
            none.
        drain_s: how long requests under way may take when the proxy stops; less than ``[run]
            drain_s``.
        workers: processes that serve together; each has its own metrics, on ports counted from
            ``[run] metrics``.
        reuse_port: other processes of this user may listen on the same address, and get their share
            of connections.
    """

    http: str = "127.0.0.1:8090"
    port_file: str = ""
    discovery_file: str = ""
    token_file: ReadFile = ""
    oidc_issuer: str = ""
    oidc_audience: str = ""
    trusted: tuple[str, ...] = ()
    head_s: PositiveFloat = 10.0
    idle_s: PositiveFloat = 60.0
    head_bytes: PositiveInt = HEAD_BYTES
    max_connections: PositiveInt = 10_000
    queue_requests: NonNegativeInt = 100
    wake_s: PositiveFloat = 30.0
    drain_s: PositiveFloat = 20.0
    tls_cert: ReadFile = ""
    tls_key: ReadFile = ""
    workers: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    reuse_port: bool = False

    def check_forms(self) -> None:
        """Raises BadSetting for an address or a network that cannot be one, and for a part of an
        issuer.
        """
        self.address()
        self.networks()
        given = {"oidc_issuer": self.oidc_issuer, "oidc_audience": self.oidc_audience}
        missing = [name for name, value in given.items() if not value]
        if len(missing) == 1:
            raise BadSetting(
                f"[proxy] {missing[0]}: Expected a value: an issuer has oidc_issuer and oidc_audience, as in [gateway]"
            )

    def address(self) -> tuple[str, int]:
        """Host and port. Raises BadSetting."""
        return read_address("proxy", self.http)

    def networks(self) -> tuple[Network, ...]:
        """The trusted networks. Raises BadSetting."""
        return read_networks("proxy", self.trusted)
