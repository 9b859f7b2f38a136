"""The parts of a gateway, passed to every endpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_bus.contract import Bus
from iris_core.access.token_file import digest_of_all
from iris_core.messages.processes import NO_TOKEN_FILE
from iris_gateway.auth.bearer import Keyring
from iris_gateway.auth.login_links import LoginLinks
from iris_gateway.auth.task_tokens import TaskTokens
from iris_gateway.bundles import Bundles
from iris_gateway.commands import Commands
from iris_gateway.discovery import DiscoveredSets
from iris_gateway.http.rate_limit import RateLimiter
from iris_gateway.metrics import Metrics
from iris_gateway.processes import Processes
from iris_gateway.queries import Queries
from iris_gateway.record_times import RecordTimes
from iris_gateway.settings import GatewaySettings
from iris_gateway.streams.artifacts import ArtifactReader
from iris_gateway.streams.feed import Feed
from iris_gateway.streams.live import LivePages
from iris_gateway.streams.logs import LogReader
from iris_gateway.streams.readers import Turns
from iris_gateway.streams.recent_maps import RecentMaps
from iris_gateway.streams.results import ResultReader
from iris_service.listening import Network
from iris_service.tracing import Tracer

if TYPE_CHECKING:
    from iris_gateway.auth.oidc import Issuer


@dataclass(slots=True)
class Gateway:
    """One running gateway.

    Attributes:
        keyring: replaced as a whole when the token file changes.
        issuer: verifies tokens of people; None: they have those of the token file only.
        record_times: by which tokens of tasks expire.
        now_ms: wall time. clock: monotonic seconds.
        pace: requests of each user. intake: bytes of each user.
        proxy_url: address of the proxy; empty: none.
        trusted: networks of proxies in front of it, whose ``X-Forwarded-For`` is believed.
        closing: whether the service is draining and refuses streams.
        turns: given to other requests while long answers are made.
        streams: by user, open answers that are made while they are read.
    """

    bus: Bus
    commands: Commands
    queries: Queries
    feed: Feed
    ends: Feed
    logs: LogReader
    results: ResultReader
    recent_maps: RecentMaps
    bundles: Bundles
    artifacts: ArtifactReader
    discovered: DiscoveredSets
    metrics: Metrics
    tracer: Tracer
    keyring: Keyring
    task_tokens: TaskTokens
    record_times: RecordTimes
    issuer: Issuer | None
    login_links: LoginLinks
    pace: RateLimiter
    intake: RateLimiter
    settings: GatewaySettings
    processes: Processes
    live: LivePages
    turns: Turns
    now_ms: Callable[[], int]
    clock: Callable[[], float]
    new_id: Callable[[], str]
    proxy_url: str = ""
    trusted: tuple[Network, ...] = ()
    closing: bool = False
    streams: Counter[str] = field(default_factory=Counter)

    @property
    def open(self) -> bool:
        """Whether authentication is off. An empty token file does not turn it off: it permits
        nobody.
        """
        return not self.settings.token_file and not self.keyring.tokens and self.issuer is None

    def digest_of_tokens(self) -> str:
        """What `ServiceInfo.tokens` says of this gateway."""
        return digest_of_all(self.keyring.tokens) if self.settings.token_file else NO_TOKEN_FILE

    @property
    def watching(self) -> int:
        """How many streams are open."""
        return self.streams.total()
