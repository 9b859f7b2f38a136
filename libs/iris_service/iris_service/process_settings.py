"""The sections ``[nats]`` and ``[run]`` of `iris.toml`, which every process has, and ``[fleet]``,
which state service and provisioner share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import msgspec

from iris_bus.connection.connection import Credentials
from iris_core.limits import NonNegativeFloat, PositiveFloat
from iris_core.messages.processes import FIRST_CLUSTER_NAME
from iris_core.subjects import ARTIFACTS, DAY_S, EVENTS, LOGS, RESULTS, STREAMS, Stream
from iris_service.listening import check_url, read_address
from iris_service.settings import ReadFile

Days = Annotated[float, msgspec.Meta(ge=0.01)]
StreamBytes = Annotated[int, msgspec.Meta(ge=1 << 22)]


class NatsSettings(msgspec.Struct, frozen=True):
    """The section ``[nats]``.

    Attributes:
        url: one server or several separated by commas; may hold user and password.
        replicas: copies of each stream; 0: 1 on one server, 3 on a cluster. A service never makes
            them fewer.
        retry_for_s: how long a start waits for a server.
        nkey_seed: path of a file with the seed of this process' key; `iris admin nats-config` makes
            one for each.
        tls_ca: path of the certificates that sign those of the servers.
        tls_cert: path of this process' certificate.
        tls_key: path of its key.
        events_days: age after which an event is deleted.
        events_bytes: size beyond which the oldest events are deleted.
        logs_days: age after which output of tasks is deleted.
        logs_bytes: size of all output; from 85% of it on that of the user who has most is deleted.
        artifacts_days: age after which an artifact is deleted.
        artifacts_bytes: likewise, of all artifacts.
        results_days: age after which results of maps are deleted.
        results_bytes: likewise, of all results.
        server: the `nats-server` program of the embedded server.
    """

    url: str = "nats://127.0.0.1:4222"
    replicas: Literal[0, 1, 3, 5] = 0
    retry_for_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    events_days: Days = EVENTS.max_age_s / DAY_S
    events_bytes: StreamBytes = EVENTS.max_bytes
    logs_days: Days = LOGS.max_age_s / DAY_S
    logs_bytes: StreamBytes = LOGS.max_bytes
    artifacts_days: Days = ARTIFACTS.max_age_s / DAY_S
    artifacts_bytes: StreamBytes = ARTIFACTS.max_bytes
    results_days: Days = RESULTS.max_age_s / DAY_S
    results_bytes: StreamBytes = RESULTS.max_bytes
    nkey_seed: ReadFile = ""
    tls_ca: ReadFile = ""
    tls_cert: ReadFile = ""
    tls_key: ReadFile = ""
    server: str = ""

    def credentials(self) -> Credentials:
        return Credentials(self.nkey_seed, self.tls_ca, self.tls_cert, self.tls_key)

    def streams(self) -> tuple[Stream, ...]:
        """The streams of the subjects table with the limits set here."""
        limits = {
            EVENTS: (self.events_days, self.events_bytes),
            LOGS: (self.logs_days, self.logs_bytes),
            ARTIFACTS: (self.artifacts_days, self.artifacts_bytes),
            RESULTS: (self.results_days, self.results_bytes),
        }
        limited = {
            stream: replace(stream, max_age_s=round(days * DAY_S), max_bytes=size)
            for stream, (days, size) in limits.items()
        }
        return tuple(limited.get(stream, stream) for stream in STREAMS)


class RunSettings(msgspec.Struct, frozen=True):
    """The section ``[run]``.

    Attributes:
        log_level: debug, info, warning or error.
        log_style: json, plain, or auto: plain on a terminal.
        cluster: the name of the cluster, the same for all its processes; `iris doctor` reports
            processes of another cluster in the same account of the NATS servers.
        metrics: host and port of ``/metrics``; port 0 takes a free one; empty serves none. `iris
            up` counts on from the port, one for each process.
        otlp_endpoint: base URL of the OTLP collector for spans; no spans when empty.
        drain_s: how long a stopping service may take before it is ended.
        disks: directories, such as that of a NATS server on this host, whose free space is a metric
            of this process; a worker adds its own.
        gc: "quiet" collects rarely, for processes that keep millions of records.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_style: Literal["auto", "json", "plain"] = "auto"
    cluster: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,63}$")] = FIRST_CLUSTER_NAME
    metrics: str = ""
    otlp_endpoint: str = ""
    drain_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    gc: Literal["default", "quiet"] = "default"
    disks: tuple[str, ...] = ()

    def check_forms(self) -> None:
        """Raises BadSetting for an address or a URL that cannot be one."""
        if self.metrics:
            read_address("run", self.metrics, "metrics")
        if self.otlp_endpoint:
            check_url("run", "otlp_endpoint", self.otlp_endpoint)


class FleetSettings(msgspec.Struct, frozen=True):
    """The section ``[fleet]``: how pools are kept. Times in seconds.

    Attributes:
        interval_s: how often the fleet is looked at, beside when something has changed.
        list_interval_s: how often a provisioner lists what providers have.
        list_lag_s: how long a list may lack a slice that was accepted.
        answer_timeout_s: how long the answer to a request for a slice may take.
        call_timeout_s: how long one call of a provider may take.
        delete_timeout_s: how long a deletion may take before it is reported as overdue.
        bad_host_s: how long a host of a slice may be DEGRADED before the slice is given up.
        orphan_s: how long what a provider lists without a record is kept.
        exhausted_first_s: how long a pool waits after a refusal for capacity; doubles up to
            `exhausted_longest_s`.
        exhausted_longest_s: the longest such time, unless the provider asks for a longer one.
        delete_fraction: part of a pool's ready slices that may be given up for failure in ten
            minutes, at least one.
        max_price_per_hour: of all slices together; 0: no limit.
        dry_run: decide, show it, and do nothing.
    """

    interval_s: PositiveFloat = 5.0
    list_interval_s: PositiveFloat = 20.0
    list_lag_s: NonNegativeFloat = 120.0
    answer_timeout_s: PositiveFloat = 60.0
    call_timeout_s: PositiveFloat = 120.0
    delete_timeout_s: PositiveFloat = 600.0
    bad_host_s: NonNegativeFloat = 300.0
    orphan_s: NonNegativeFloat = 900.0
    exhausted_first_s: PositiveFloat = 30.0
    exhausted_longest_s: PositiveFloat = 900.0
    delete_fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    max_price_per_hour: NonNegativeFloat = 0.0
    dry_run: bool = False
