"""One case for each alert in which it fires, beside a healthy cluster. Values are promtool's
series.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GATEWAY = 'cluster="c", job="iris-gateway", instance="gw:8080"'
LEADER = 'cluster="c", job="iris-state", instance="state-0:9101"'
STANDBY = 'cluster="c", job="iris-state", instance="state-1:9101"'
SCHEDULER = 'cluster="c", job="iris-scheduler", instance="sched:9102"'
WORKER = 'cluster="c", job="iris-worker", instance="w0:9103"'
PROXY = 'cluster="c", job="iris-proxy", instance="proxy:9104"'
NOTIFIER = 'cluster="c", job="iris-notifier", instance="notifier:9106"'
EVERY = (GATEWAY, LEADER, STANDBY, SCHEDULER, WORKER, PROXY)

STILL, STEADY = "x180", "+60x180"
"""Three hours of one sample a minute: the same value, or a counter that grows by one a second."""

_ANNS = 'user="ann", waiting_job="/train"'

HEALTHY: dict[str, str] = {
    **{f"up{{{process}}}": f"1{STILL}" for process in EVERY},
    **{f"iris_bus_connected{{{process}}}": f"1{STILL}" for process in EVERY},
    **{f"iris_bus_reconnects_total{{{process}}}": f"1{STILL}" for process in EVERY},
    **{f'iris_service_info{{{process}, version="1"}}': f"1{STILL}" for process in EVERY},
    f"iris_leader{{{LEADER}}}": f"1{STILL}",
    f"iris_leader{{{STANDBY}}}": f"0{STILL}",
    f"iris_epoch{{{LEADER}}}": f"7{STILL}",
    f"iris_times_ahead_seconds{{{LEADER}}}": f"1{STILL}",
    **{f'iris_consumer_pending{{{at}, consumer="{what}"}}': f"3{STILL}" for at in (LEADER, STANDBY)
       for what in ("journal", "events")},
    f'iris_commit_seconds_bucket{{{LEADER}, le="0.01"}}': f"0{STEADY}",
    f'iris_commit_seconds_bucket{{{LEADER}, le="3.0"}}': f"0{STEADY}",
    f'iris_commit_seconds_bucket{{{LEADER}, le="+Inf"}}': f"0{STEADY}",
    f"iris_snapshot_age_seconds{{{SCHEDULER}}}": f"2{STILL}",
    f"iris_user_oldest_pending_seconds{{{LEADER}, {_ANNS}}}": f"600{STILL}",
    f'iris_slices{{{LEADER}, variant="v4-16", state="free"}}': f"2{STILL}",
    f'iris_fleet_pool_paused{{{LEADER}, pool="cpu"}}': f"0{STILL}",
    f'iris_fleet_slices_overdue{{{LEADER}, pool="cpu"}}': f"0{STILL}",
    f'iris_fleet_need_slices{{{LEADER}, pool="cpu"}}': f"0{STILL}",
    f"iris_fleet_orphans{{{LEADER}}}": f"0{STILL}",
    f"iris_fleet_dry_run{{{LEADER}}}": f"0{STILL}",
    f"iris_fleet_dry_run{{{STANDBY}}}": f"0{STILL}",
    f'iris_fleet_refusals_total{{{LEADER}, pool="cpu", cause="boot_timeout"}}': f"1{STILL}",
    f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="0.1"}}': f"0{STEADY}",
    f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="10.0"}}': f"0{STEADY}",
    f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="+Inf"}}': f"0{STEADY}",
    f"iris_worker_log_dropped_bytes_total{{{WORKER}}}": f"0{STILL}",
    f'iris_http_requests_total{{{GATEWAY}, status="200"}}': f"0{STEADY}",
    f'iris_deployment_routes{{{LEADER}, state="unhealthy"}}': f"0{STILL}",
    f'iris_proxy_requests_total{{{PROXY}, status="200"}}': f"0{STEADY}",
    **{f'iris_nats_server_up{{{LEADER}, server="{name}"}}': f"1{STILL}" for name in ("n0", "n1", "n2")},
    **{f'iris_store_copies{{{LEADER}, store="IRIS_JOURNAL", kind="{kind}"}}': f"3{STILL}"
       for kind in ("wanted", "declared", "current")},
    f'iris_stored_bytes{{{LEADER}, store="IRIS_LOGS"}}': f"90{STILL}",
    f'iris_store_limit_bytes{{{LEADER}, store="IRIS_LOGS"}}': f"100{STILL}",
    **{f'iris_nats_server_storage_bytes{{{LEADER}, server="n0", kind="{kind}"}}': f"{size}{STILL}"
       for kind, size in (("stored", 10), ("reserved", 50), ("limit", 100))},
    **{f'iris_nats_server_storage_bytes{{{LEADER}, server="n1", kind="{kind}"}}': f"{size}{STILL}"
       for kind, size in (("stored", 10), ("reserved", 50), ("limit", 0))},
    f'iris_disk_free_bytes{{{WORKER}, path="/d"}}': f"50{STILL}",
    f'iris_disk_size_bytes{{{WORKER}, path="/d"}}': f"100{STILL}",
    f"iris_last_backup_timestamp_seconds{{{LEADER}}}": f"0{STILL}",
    f'iris_certificate_expiry_timestamp_seconds{{{GATEWAY}, certificate="/c.pem"}}': f"9000000{STILL}",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What differs from the healthy cluster, and the labels the alert then has beside its
    severity.
    """

    differs: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)


def labels_of(process: str, **more: str) -> dict[str, str]:
    return {
        **{
            name: value.strip('"')
            for name, value in (part.split("=") for part in process.split(", "))
        },
        **more,
    }


CLUSTER = {"cluster": "c"}

CASES: dict[str, Case] = {
    "IrisServiceDown": Case({f"up{{{WORKER}}}": f"0{STILL}"}, labels_of(WORKER)),
    "IrisNoLeader": Case({f"iris_leader{{{LEADER}}}": f"0{STILL}"}, CLUSTER),
    "IrisNoStandby": Case({f"iris_leader{{{STANDBY}}}": "_x180"}, CLUSTER),
    "IrisLeaderChanges": Case({f"iris_epoch{{{LEADER}}}": "7x170 12x10"}, CLUSTER),
    "IrisStandbyBehind": Case(
        {f'iris_consumer_pending{{{STANDBY}, consumer="journal"}}': f"5000{STILL}"},
        labels_of(STANDBY, consumer="journal"),
    ),
    "IrisClockStepped": Case(
        {f"iris_times_ahead_seconds{{{LEADER}}}": f"-3600{STILL}"}, labels_of(LEADER)
    ),
    "IrisEventsBehind": Case(
        {f'iris_consumer_pending{{{LEADER}, consumer="events"}}': f"50000{STILL}"},
        labels_of(LEADER, consumer="events"),
    ),
    "IrisCommitsSlow": Case(
        {f'iris_commit_seconds_bucket{{{LEADER}, le="0.01"}}': f"0{STILL}"}, CLUSTER
    ),
    "IrisInputSetAside": Case(
        {f'iris_inputs_set_aside_total{{{LEADER}, kind="command"}}': "_x170 1x10"},
        labels_of(LEADER, kind="command"),
    ),
    "IrisCollectorFails": Case(
        {f'iris_collector_failures_total{{{WORKER}, collector="ready"}}': "_x170 1x10"},
        labels_of(WORKER, collector="ready"),
    ),
    "IrisNoScheduler": Case({f"iris_snapshot_age_seconds{{{SCHEDULER}}}": f"_{STILL}"}, CLUSTER),
    "IrisSchedulerStale": Case(
        {f"iris_snapshot_age_seconds{{{SCHEDULER}}}": f"-1{STILL}"}, labels_of(SCHEDULER)
    ),
    "IrisJobsWaitLong": Case(
        {f"iris_user_oldest_pending_seconds{{{LEADER}, {_ANNS}}}": f"30000{STILL}"},
        {**CLUSTER, "user": "ann", "waiting_job": "/train"},
    ),
    "IrisWorkersLost": Case(
        {f'iris_host_unwell{{{LEADER}, host="w0", state="lost"}}': f"1{STILL}"},
        {**CLUSTER, "host": "w0"},
    ),
    "IrisWorkersDegraded": Case(
        {f'iris_host_unwell{{{LEADER}, host="w0", state="degraded"}}': f"1{STILL}"},
        {**CLUSTER, "host": "w0"},
    ),
    "IrisSlicesBroken": Case(
        {f'iris_slices{{{LEADER}, variant="v4-16", state="broken"}}': f"1{STILL}"},
        {**CLUSTER, "variant": "v4-16"},
    ),
    "IrisPoolPaused": Case(
        {f'iris_fleet_pool_paused{{{LEADER}, pool="cpu"}}': f"1{STILL}"},
        {**CLUSTER, "pool": "cpu"},
    ),
    "IrisBootsFail": Case(
        {f'iris_fleet_refusals_total{{{LEADER}, pool="cpu", cause="boot_timeout"}}': "0+1x180"},
        {**CLUSTER, "pool": "cpu"},
    ),
    "IrisDeletionOverdue": Case(
        {f'iris_fleet_slices_overdue{{{LEADER}, pool="cpu"}}': f"1{STILL}"},
        {**CLUSTER, "pool": "cpu"},
    ),
    "IrisOrphanedSlices": Case({f"iris_fleet_orphans{{{LEADER}}}": f"1{STILL}"}, CLUSTER),
    "IrisNeedUnmet": Case(
        {f'iris_fleet_need_slices{{{LEADER}, pool="cpu"}}': f"3{STILL}"},
        {**CLUSTER, "pool": "cpu"},
    ),
    "IrisMessagesGivenUp": Case(
        {f'iris_notify_deliveries_total{{{NOTIFIER}, result="given_up"}}': "0+1x180"},
        {**CLUSTER, "job": "iris-notifier", "instance": "notifier:9106", "result": "given_up"},
    ),
    "IrisNotificationsMissed": Case(
        {f"iris_notify_gaps_total{{{NOTIFIER}}}": f"_x150 1{STILL}"},
        {**CLUSTER, "job": "iris-notifier", "instance": "notifier:9106"},
    ),
    "IrisHeartbeatsLate": Case(
        {f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="0.1"}}': f"0{STILL}"},
        {**CLUSTER, "instance": "w0:9103"},
    ),
    "IrisOutputDropped": Case(
        {f"iris_worker_log_dropped_bytes_total{{{WORKER}}}": f"0{STEADY}"},
        {**CLUSTER, "instance": "w0:9103"},
    ),
    "IrisBusDisconnected": Case(
        {f"iris_bus_connected{{{WORKER}}}": f"0{STILL}"}, labels_of(WORKER)
    ),
    "IrisBusReconnects": Case(
        {f"iris_bus_reconnects_total{{{WORKER}}}": "0+1x180"}, labels_of(WORKER)
    ),
    "IrisNatsServerDown": Case(
        {f'iris_nats_server_up{{{LEADER}, server="n1"}}': f"0{STILL}"}, {**CLUSTER, "server": "n1"}
    ),
    "IrisStoreUnderReplicated": Case(
        {f'iris_store_copies{{{LEADER}, store="IRIS_JOURNAL", kind="current"}}': f"1{STILL}"},
        {**CLUSTER, "store": "IRIS_JOURNAL"},
    ),
    "IrisStoreFull": Case(
        {f'iris_stored_bytes{{{LEADER}, store="IRIS_LOGS"}}': f"96{STILL}"},
        {**CLUSTER, "store": "IRIS_LOGS"},
    ),
    "IrisNatsStorageFull": Case(
        {f'iris_nats_server_storage_bytes{{{LEADER}, server="n0", kind="stored"}}': f"91{STILL}"},
        {**CLUSTER, "server": "n0"},
    ),
    "IrisNatsStorageReserved": Case(
        {f'iris_nats_server_storage_bytes{{{LEADER}, server="n0", kind="reserved"}}': f"96{STILL}"},
        {**CLUSTER, "server": "n0"},
    ),
    "IrisDiskFull": Case(
        {f'iris_disk_free_bytes{{{WORKER}, path="/d"}}': f"5{STILL}"}, labels_of(WORKER, path="/d")
    ),
    "IrisBackupOld": Case(
        {f"iris_last_backup_timestamp_seconds{{{LEADER}}}": f"-200000{STILL}"}, CLUSTER
    ),
    "IrisCertificateExpires": Case(
        {
            f'iris_certificate_expiry_timestamp_seconds{{{GATEWAY}, certificate="/c.pem"}}': f"300000{STILL}"
        },
        labels_of(GATEWAY, certificate="/c.pem"),
    ),
    "IrisGatewayErrors": Case(
        {f'iris_http_requests_total{{{GATEWAY}, status="503"}}': f"0{STEADY}"}, CLUSTER
    ),
    "IrisRoutesUnhealthy": Case(
        {f'iris_deployment_routes{{{LEADER}, state="unhealthy"}}': f"1{STILL}"}, CLUSTER
    ),
    "IrisProxyErrors": Case(
        {f'iris_proxy_requests_total{{{PROXY}, status="502"}}': f"0{STEADY}"}, CLUSTER
    ),
    "IrisVersionSkew": Case({f'iris_service_info{{{WORKER}, version="2"}}': f"1{STILL}"}, CLUSTER),
}
