"""deploy/prometheus/alerts.yml: alert rules for Prometheus, made from one table.

The page of the runbook is docs/troubleshooting.md, one heading per alert.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from drawings.dashboards import leader

RUNBOOK = "docs/troubleshooting.md"
"""A path in the repository; put the address of the place where you read these pages before it."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule.

    Attributes:
        lasts: how long ``query`` holds before it fires. severity: page (somebody acts now), or
            ticket.
        summary: a sentence; ``{{ $labels.x }}`` is replaced.
    """

    name: str
    query: str
    lasts: str
    severity: str
    summary: str

    @property
    def runbook(self) -> str:
        return f"{RUNBOOK}#{self.name.lower()}"


def p99(histogram: str, by: str = "") -> str:
    labels = f"cluster, le, {by}" if by else "cluster, le"
    return f"histogram_quantile(0.99, sum by ({labels}) (rate({histogram}_bucket[5m])))"


def failed(requests: str) -> str:
    """More than one of twenty."""
    every, bad = (
        f"sum by (cluster) (rate({requests}{which}[5m]))" for which in ("", '{status=~"5.."}')
    )
    return f"{bad} / {every} > 0.05"


_PROCESSES = 'up{job=~"iris-.+"}'

ALERTS = (
    Alert(
        "IrisServiceDown",
        f"{_PROCESSES} == 0",
        "2m",
        "page",
        "{{ $labels.job }} at {{ $labels.instance }} does not answer.",
    ),
    Alert(
        "IrisNoLeader",
        "sum by (cluster) (iris_leader) == 0"
        f" or (group by (cluster) ({_PROCESSES}) unless group by (cluster) (iris_leader)) or absent({_PROCESSES})",
        "1m",
        "page",
        "No state service leads in cluster {{ $labels.cluster }}.",
    ),
    Alert(
        "IrisNoStandby",
        "count by (cluster) (iris_leader) < 2 and on (cluster) count by (cluster) (iris_nats_server_up) > 1",
        "10m",
        "page",
        "No second state service stands by in cluster {{ $labels.cluster }}.",
    ),
    Alert(
        "IrisLeaderChanges",
        "max by (cluster) (iris_epoch) - max by (cluster) (iris_epoch offset 15m) > 3 < 10000",
        "0m",
        "ticket",
        "The leader of the state service has changed more than three times in 15 minutes.",
    ),
    Alert(
        "IrisStandbyBehind",
        'iris_consumer_pending{consumer="journal"} > 1000',
        "5m",
        "ticket",
        "The standby at {{ $labels.instance }} is more than 1000 commits behind the leader.",
    ),
    Alert(
        "IrisClockStepped",
        "abs(iris_times_ahead_seconds) > 10 and iris_leader == 1",
        "5m",
        "ticket",
        "Times of records are more than 10 s off the clock of the leader's host at {{ $labels.instance }}.",
    ),
    Alert(
        "IrisEventsBehind",
        'iris_consumer_pending{consumer="events"} > 10000',
        "5m",
        "ticket",
        "More than 10000 events are not published yet.",
    ),
    Alert(
        "IrisCommitsSlow",
        f"{p99('iris_commit_seconds')} > 1",
        "10m",
        "page",
        "One commit of a hundred takes longer than a second.",
    ),
    Alert(
        "IrisInputSetAside",
        "(iris_inputs_set_aside_total unless iris_inputs_set_aside_total offset 15m)"
        " or increase(iris_inputs_set_aside_total[15m]) > 0",
        "0m",
        "ticket",
        "The state service has set aside an input of kind {{ $labels.kind }}.",
    ),
    Alert(
        "IrisCollectorFails",
        "(iris_collector_failures_total unless iris_collector_failures_total offset 15m)"
        " or increase(iris_collector_failures_total[15m]) > 0",
        "0m",
        "ticket",
        "Figures of {{ $labels.collector }} are missing at {{ $labels.instance }}; other alerts may stay silent.",
    ),
    Alert(
        "IrisNoScheduler",
        "group by (cluster) (iris_leader) unless group by (cluster) (iris_snapshot_age_seconds)",
        "1m",
        "page",
        "No scheduler answers in cluster {{ $labels.cluster }}.",
    ),
    Alert(
        "IrisSchedulerStale",
        "iris_snapshot_age_seconds > 60 or iris_snapshot_age_seconds < 0",
        "2m",
        "page",
        "The scheduler at {{ $labels.instance }} has no current records.",
    ),
    Alert(
        "IrisJobsWaitLong",
        f"max by (cluster, user, waiting_job) {leader('iris_user_oldest_pending_seconds')} > 6 * 3600",
        "15m",
        "ticket",
        "{{ $labels.waiting_job }} of {{ $labels.user }} has waited longer than six hours.",
    ),
    Alert(
        "IrisWorkersLost",
        f'max by (cluster, host) {leader("""iris_host_unwell{state="lost"}""")} > 0',
        "10m",
        "ticket",
        "Worker {{ $labels.host }} is lost and has not come back.",
    ),
    Alert(
        "IrisWorkersDegraded",
        f'max by (cluster, host) {leader("""iris_host_unwell{state="degraded"}""")} > 0',
        "10m",
        "ticket",
        "Worker {{ $labels.host }} is degraded and gets no new tasks.",
    ),
    Alert(
        "IrisSlicesBroken",
        f'sum by (cluster, variant) {leader("""iris_slices{state="broken"}""")} > 0',
        "30m",
        "ticket",
        "Slices of {{ $labels.variant }} cannot be used as a whole.",
    ),
    Alert(
        "IrisPoolPaused",
        f"max by (cluster, pool) {leader('iris_fleet_pool_paused')} > 0",
        "5m",
        "page",
        "Pool {{ $labels.pool }} makes nothing until somebody has looked: its provider refuses, or too much of it fails.",
    ),
    Alert(
        "IrisBootsFail",
        "sum by (cluster, pool)"
        ' (increase(iris_fleet_refusals_total{cause=~"boot_failed|boot_timeout|create_failed|no_answer"}[30m])) > 2',
        "0m",
        "ticket",
        "Slices of pool {{ $labels.pool }} are requested and never become ready.",
    ),
    Alert(
        "IrisDeletionOverdue",
        f"max by (cluster, pool) {leader('iris_fleet_slices_overdue')} > 0",
        "10m",
        "page",
        "A slice of pool {{ $labels.pool }} is not deleted and may cost money.",
    ),
    Alert(
        "IrisOrphanedSlices",
        f"max by (cluster) {leader('iris_fleet_orphans')} > 0",
        "30m",
        "ticket",
        "Providers of cluster {{ $labels.cluster }} list slices that no record has.",
    ),
    Alert(
        "IrisNeedUnmet",
        f"max by (cluster, pool) {leader('iris_fleet_need_slices')} > 0"
        f" unless on (cluster) {leader('iris_fleet_dry_run')} == 1",
        "1h",
        "ticket",
        "Work has waited for slices of pool {{ $labels.pool }} for an hour.",
    ),
    Alert(
        "IrisMessagesGivenUp",
        'increase(iris_notify_deliveries_total{result="given_up"}[15m]) > 0',
        "0m",
        "ticket",
        "Messages about jobs could not be delivered for a day; their targets are paused.",
    ),
    Alert(
        "IrisNotificationsMissed",
        "increase(iris_notify_gaps_total[1h]) > 0 or iris_notify_gaps_total > 0 unless"
        " iris_notify_gaps_total offset 1h",
        "0m",
        "ticket",
        "Events were deleted before the notifier at {{ $labels.instance }} read them, as by a restore.",
    ),
    Alert(
        "IrisHeartbeatsLate",
        f"{p99('iris_heartbeat_lag_seconds', 'instance')} > 3",
        "10m",
        "ticket",
        "The worker at {{ $labels.instance }} sends heartbeats late.",
    ),
    Alert(
        "IrisOutputDropped",
        "sum by (cluster, instance) (rate(iris_worker_log_dropped_bytes_total[15m])) > 0",
        "0m",
        "ticket",
        "The worker at {{ $labels.instance }} drops output of tasks.",
    ),
    Alert(
        "IrisBusDisconnected",
        "iris_bus_connected == 0",
        "1m",
        "page",
        "{{ $labels.job }} at {{ $labels.instance }} is not connected to NATS.",
    ),
    Alert(
        "IrisBusReconnects",
        "increase(iris_bus_reconnects_total[15m]) > 5",
        "0m",
        "ticket",
        "{{ $labels.job }} at {{ $labels.instance }} loses its connection to NATS again and again.",
    ),
    Alert(
        "IrisNatsServerDown",
        "min by (cluster, server) (iris_nats_server_up) == 0",
        "1m",
        "page",
        "NATS server {{ $labels.server }} of cluster {{ $labels.cluster }} does not answer the others.",
    ),
    Alert(
        "IrisStoreUnderReplicated",
        'max by (cluster, store) (iris_store_copies{kind="wanted"})'
        ' > max by (cluster, store) (iris_store_copies{kind="current"})',
        "5m",
        "page",
        "{{ $labels.store }} of cluster {{ $labels.cluster }} has fewer copies than it should have.",
    ),
    Alert(
        "IrisStoreFull",
        "max by (cluster, store) (iris_stored_bytes) / max by (cluster, store) (iris_store_limit_bytes) > 0.95",
        "15m",
        "ticket",
        "{{ $labels.store }} of cluster {{ $labels.cluster }} has reached its limit, so the oldest of it is deleted.",
    ),
    Alert(
        "IrisNatsStorageFull",
        'max by (cluster, server) (iris_nats_server_storage_bytes{kind="stored"})'
        ' / (max by (cluster, server) (iris_nats_server_storage_bytes{kind="limit"}) > 0) > 0.9',
        "5m",
        "page",
        "NATS server {{ $labels.server }} of cluster {{ $labels.cluster }} has nearly stored what it may.",
    ),
    Alert(
        "IrisNatsStorageReserved",
        'max by (cluster, server) (iris_nats_server_storage_bytes{kind="reserved"})'
        ' / (max by (cluster, server) (iris_nats_server_storage_bytes{kind="limit"}) > 0) > 0.95',
        "15m",
        "ticket",
        "Streams reserve nearly all that NATS server {{ $labels.server }} of cluster {{ $labels.cluster }} may store.",
    ),
    Alert(
        "IrisDiskFull",
        "iris_disk_free_bytes / iris_disk_size_bytes < 0.1",
        "5m",
        "page",
        "Less than a tenth of the disk of {{ $labels.path }} is free at {{ $labels.instance }}.",
    ),
    Alert(
        "IrisBackupOld",
        "time() - max by (cluster) (iris_last_backup_timestamp_seconds) > 2 * 86400",
        "1h",
        "ticket",
        "Cluster {{ $labels.cluster }} has had no backup for two days.",
    ),
    Alert(
        "IrisCertificateExpires",
        "iris_certificate_expiry_timestamp_seconds - time() < 7 * 86400",
        "1h",
        "page",
        "The certificate {{ $labels.certificate }} at {{ $labels.instance }} expires within a week.",
    ),
    Alert(
        "IrisGatewayErrors",
        failed("iris_http_requests_total"),
        "5m",
        "page",
        "More than one of twenty requests to the gateway is answered with 5xx.",
    ),
    Alert(
        "IrisRoutesUnhealthy",
        f'sum by (cluster) {leader("""iris_deployment_routes{state="unhealthy"}""")} > 0',
        "10m",
        "ticket",
        "Routes of deployments do not pass their probes.",
    ),
    Alert(
        "IrisProxyErrors",
        failed("iris_proxy_requests_total"),
        "5m",
        "page",
        "More than one of twenty requests to deployments is answered with 5xx.",
    ),
    Alert(
        "IrisVersionSkew",
        "count by (cluster) (count by (cluster, version) (iris_service_info)) > 1",
        "1h",
        "ticket",
        "Services of different releases have run beside each other for an hour.",
    ),
)


def alerts_document() -> str:
    """The rules as Prometheus reads them; a text in double quotes is the same in JSON and in
    YAML.
    """
    lines = [
        "# Drawn by `make draw` from docs/drawings/alerts.py; change that, not this.",
        "groups:",
        "  - name: iris",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.query)}",
            f"        for: {alert.lasts}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook_url: {json.dumps(alert.runbook)}",
        ]
    return "\n".join(lines) + "\n"
