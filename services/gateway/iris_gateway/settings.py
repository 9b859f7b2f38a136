"""The section ``[gateway]`` of `iris.toml`, and its validation before the start."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec

from iris_core.addresses import is_loopback
from iris_core.limits import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from iris_core.views.usage import Prices
from iris_service.listening import check_url, read_address, read_networks
from iris_service.settings import BadSetting, ReadFile

UserRate = Annotated[float, msgspec.Meta(ge=0)]
UserBurst = Annotated[float, msgspec.Meta(ge=1)]


class IssuerSettings(NamedTuple):
    """The settings of an issuer; see `GatewaySettings`."""

    issuer: str
    audience: str
    keys: str
    user_claim: str
    roles_claim: str
    admin_roles: tuple[str, ...]
    user_roles: tuple[str, ...]
    groups_claim: str = "groups"


class GatewaySettings(msgspec.Struct, frozen=True):
    """How the gateway listens and what it allows. Times in seconds, sizes in bytes.

    Attributes:
        http: `host:port` to listen at; port 0 takes a free one.
        token_file: file of the callers' tokens; without it the gateway listens on loopback only,
            and every caller is admin.
        proxy_url: public address of the proxy of deployments, e.g. ``https://serve.example.org``;
            requests below ``/d/`` are redirected to it.
        tls_cert: PEM file of the certificate with its chain, for HTTPS; empty: plain HTTP. A
            changed file is read again within seconds.
        tls_key: PEM file of its key.
        trusted: networks of proxies in front of this gateway, e.g. ``10.0.0.0/8``; the address of a
            caller in the audit is what their ``X-Forwarded-For`` says.
        port_file: file to which the address is written once the gateway is ready; also
            ``IRIS_PORT_FILE``.
        command_timeout_s: how long a submission may wait for the state service before it is
            answered 503.
        query_timeout_s: how long a read is retried while there is no leader.
        body_bytes: the largest JSON body.
        bundle_bytes: the largest bundle.
        bundles_bytes: limit of all stored bundles; beyond it uploads are answered 503. While more
            than half of it is used, a user may have a fifth of it.
        uploads_per_user: concurrent uploads of one user.
        head_s: how long a request's head may take.
        body_idle_s: the longest pause in a bundle that is sent.
        unread_s: how long a client may read nothing of what is sent to it; then its connection is
            closed.
        connections_per_address: open connections of one address, 0: unlimited; a proxy counts as
            one address. At most as many as the process has descriptors less 128, of which a quarter
            without a token; a lower limit is logged at the start.
        watchers: answers that may be open at a time of those that are made while they are read:
            output, events, results, artifacts, commands, usage as CSV.
        watchers_per_user: of those, streams of one user.
        requests_per_s: requests of one user per second, 0: unlimited.
        request_burst: requests of one user at once after a pause.
        intake_per_s: bytes sent by one user per second, 0: unlimited.
        intake_burst: bytes of one user at once after a pause.
        event_ring: newest events kept in memory for watchers; as many again of those that end jobs.
        keep_alive_s: silence after which a stream sends a keep-alive.
        drain_s: how long requests in progress may take when the gateway stops.
        prices: ``cpu=0.04``, ``memory=0.005``, ``H100=2.5``: of an hour of a processor, of a GiB,
            of a device of that variant, for the cost in `iris usage` of what runs outside of pools;
            what is not named costs nothing, and without any no cost is shown. On hosts of pools the
            pool's price counts.
        oidc_issuer: OpenID Connect issuer whose tokens are accepted; empty: only tokens of the
            token file.
        oidc_audience: audience that such a token must have.
        oidc_client: id of a public client of the issuer that may use the device flow, for `iris
            login`; empty: none.
        oidc_keys: address or file of the issuer's JSON Web Key Set.
        oidc_user_claim: the claim that holds the user's name.
        oidc_roles_claim: the claim that holds roles, a list or words; ``realm_access.roles`` is one
            within another.
        oidc_admin_roles: values of the claim of roles that make a caller an admin.
        oidc_user_roles: roles of users; empty: everybody the issuer knows.
        oidc_groups_claim: the claim that holds the user's groups, a list or words, for limits by
            `iris quota set @GROUP`; a token without it names no group.
    """

    http: str = "127.0.0.1:8080"
    token_file: ReadFile = ""
    proxy_url: str = ""
    trusted: tuple[str, ...] = ()
    port_file: str = ""
    command_timeout_s: PositiveFloat = 10.0
    query_timeout_s: PositiveFloat = 5.0
    body_bytes: PositiveInt = 1 << 20
    bundle_bytes: PositiveInt = 256 << 20
    bundles_bytes: PositiveInt = 64 << 30
    uploads_per_user: PositiveInt = 4
    head_s: PositiveFloat = 20.0
    body_idle_s: PositiveFloat = 30.0
    unread_s: PositiveFloat = 30.0
    connections_per_address: NonNegativeInt = 5000
    watchers: PositiveInt = 5000
    watchers_per_user: PositiveInt = 2000
    requests_per_s: UserRate = 2000.0
    request_burst: UserBurst = 20_000.0
    intake_per_s: UserRate = 64.0 * (1 << 20)
    intake_burst: UserBurst = 4.0 * (1 << 30)
    event_ring: PositiveInt = 20_000
    keep_alive_s: PositiveFloat = 15.0
    drain_s: NonNegativeFloat = 5.0
    tls_cert: ReadFile = ""
    tls_key: ReadFile = ""
    prices: tuple[str, ...] = ()
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_keys: ReadFile = ""
    oidc_user_claim: str = "sub"
    oidc_roles_claim: str = "roles"
    oidc_admin_roles: tuple[str, ...] = ()
    oidc_user_roles: tuple[str, ...] = ()
    oidc_client: str = ""
    oidc_groups_claim: str = "groups"

    def check_forms(self) -> None:
        """Raises BadSetting for an address, a URL or a network that cannot be one, and for a part
        of an issuer.
        """
        self.address()
        self.issuer()
        try:
            Prices(self.prices)
        except ValueError as error:
            raise BadSetting(f"[gateway] prices: {error}") from None
        read_networks("gateway", self.trusted)
        if self.proxy_url:
            check_url("gateway", "proxy_url", self.proxy_url)

    def address(self) -> tuple[str, int]:
        """Host and port. Raises BadSetting, also when anyone on the network could act as admin."""
        host, port = read_address("gateway", self.http)
        if not (self.token_file or self.oidc_issuer) and not is_loopback(host):
            raise BadSetting(
                f"[gateway] http: {host} is reachable from other hosts, so token_file is required"
            )
        return host, port

    def issuer(self) -> IssuerSettings | None:
        """The issuer of people's tokens, None when there is none. Raises BadSetting."""
        needed = {
            "issuer": self.oidc_issuer,
            "audience": self.oidc_audience,
            "keys": self.oidc_keys,
        }
        others = {
            "client": self.oidc_client,
            "admin_roles": self.oidc_admin_roles,
            "user_roles": self.oidc_user_roles,
        }
        given = [name for name, value in {**needed, **others}.items() if value]
        if not given:
            return None
        if missing := [name for name in needed if name not in given]:
            raise BadSetting(
                f"[gateway] oidc_{missing[0]}: Expected a value beside oidc_{given[0]}: an issuer has oidc_issuer, "
                "oidc_audience and oidc_keys"
            )
        url = urlsplit(self.oidc_keys)
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise BadSetting(
                "[gateway] oidc_keys: must be an https URL: plain http lets an attacker replace the signing keys"
            )
        return IssuerSettings(
            self.oidc_issuer,
            self.oidc_audience,
            self.oidc_keys,
            self.oidc_user_claim,
            roles_claim=self.oidc_roles_claim,
            admin_roles=self.oidc_admin_roles,
            user_roles=self.oidc_user_roles,
            groups_claim=self.oidc_groups_claim,
        )
