"""One case for each alert in which it fires, beside a healthy cluster. Values are promtool's series."""

from __future__ import annotations

from dataclasses import dataclass, field

GATEWAY = 'job="iris-gateway", instance="gw:8080"'
LEADER = 'job="iris-state", instance="state-0:9101"'
STANDBY = 'job="iris-state", instance="state-1:9101"'
SCHEDULER = 'job="iris-scheduler", instance="sched:9102"'
WORKER = 'job="iris-worker", instance="w0:9103"'
PROXY = 'job="iris-proxy", instance="proxy:9104"'
EVERY = (GATEWAY, LEADER, STANDBY, SCHEDULER, WORKER, PROXY)

STILL, STEADY = "x180", "+60x180"
"""Three hours of one sample a minute: the same value, or a counter that grows by one a second."""

HEALTHY: dict[str, str] = {
    **{f"up{{{process}}}": f"1{STILL}" for process in EVERY},
    **{f"iris_bus_connected{{{process}}}": f"1{STILL}" for process in EVERY},
    **{f"iris_bus_reconnects_total{{{process}}}": f"1{STILL}" for process in EVERY},
    **{f'iris_service_info{{{process}, version="1"}}': f"1{STILL}" for process in EVERY},
    f"iris_leader{{{LEADER}}}": f"1{STILL}",
    f"iris_leader{{{STANDBY}}}": f"0{STILL}",
    f"iris_epoch{{{LEADER}}}": f"7{STILL}",
    **{f'iris_consumer_pending{{{at}, consumer="{what}"}}': f"3{STILL}" for at in (LEADER, STANDBY)
       for what in ("journal", "events")},
    f'iris_commit_seconds_bucket{{{LEADER}, le="0.01"}}': f"0{STEADY}",
    f'iris_commit_seconds_bucket{{{LEADER}, le="3.0"}}': f"0{STEADY}",
    f'iris_commit_seconds_bucket{{{LEADER}, le="+Inf"}}': f"0{STEADY}",
    f"iris_snapshot_age_seconds{{{SCHEDULER}}}": f"2{STILL}",
    f"iris_oldest_pending_seconds{{{LEADER}}}": f"600{STILL}",
    **{f'iris_workers{{{at}, state="{state}"}}': f"0{STILL}" for at in (LEADER, STANDBY)
       for state in ("lost", "degraded")},
    f'iris_slices{{{LEADER}, variant="v4-16", state="free"}}': f"2{STILL}",
    f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="0.1"}}': f"0{STEADY}",
    f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="10.0"}}': f"0{STEADY}",
    f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="+Inf"}}': f"0{STEADY}",
    f"iris_worker_log_dropped_bytes_total{{{WORKER}}}": f"0{STILL}",
    f'iris_http_requests_total{{{GATEWAY}, status="200"}}': f"0{STEADY}",
    f'iris_deployment_routes{{{LEADER}, state="unhealthy"}}': f"0{STILL}",
    f'iris_proxy_requests_total{{{PROXY}, status="200"}}': f"0{STEADY}",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What differs from the healthy cluster, and the labels the alert then has beside its severity."""

    differs: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)


def labels_of(process: str, **more: str) -> dict[str, str]:
    job, instance = (part.split("=")[1].strip('"') for part in process.split(", "))
    return {"job": job, "instance": instance, **more}


CASES: dict[str, Case] = {
    "IrisServiceDown": Case({f"up{{{WORKER}}}": f"0{STILL}"}, labels_of(WORKER)),
    "IrisNoLeader": Case({f"iris_leader{{{LEADER}}}": f"0{STILL}"}),
    "IrisLeaderChanges": Case({f"iris_epoch{{{LEADER}}}": "7x170 12x10"}),
    "IrisStandbyBehind": Case(
        {f'iris_consumer_pending{{{STANDBY}, consumer="journal"}}': f"5000{STILL}"},
        labels_of(STANDBY, consumer="journal"),
    ),
    "IrisEventsBehind": Case(
        {f'iris_consumer_pending{{{LEADER}, consumer="events"}}': f"50000{STILL}"},
        labels_of(LEADER, consumer="events"),
    ),
    "IrisCommitsSlow": Case({f'iris_commit_seconds_bucket{{{LEADER}, le="0.01"}}': f"0{STILL}"}),
    "IrisInputSetAside": Case(
        {f'iris_inputs_set_aside_total{{{LEADER}, kind="command"}}': "_x170 1x10"}, labels_of(LEADER, kind="command")
    ),
    "IrisSchedulerStale": Case({f"iris_snapshot_age_seconds{{{SCHEDULER}}}": f"-1{STILL}"}, labels_of(SCHEDULER)),
    "IrisJobsWaitLong": Case({f"iris_oldest_pending_seconds{{{LEADER}}}": f"30000{STILL}"}),
    "IrisWorkersLost": Case({f'iris_workers{{{LEADER}, state="lost"}}': f"1{STILL}"}),
    "IrisWorkersDegraded": Case({f'iris_workers{{{LEADER}, state="degraded"}}': f"1{STILL}"}),
    "IrisSlicesBroken": Case(
        {f'iris_slices{{{LEADER}, variant="v4-16", state="broken"}}': f"1{STILL}"}, {"variant": "v4-16"}
    ),
    "IrisHeartbeatsLate": Case(
        {f'iris_heartbeat_lag_seconds_bucket{{{WORKER}, le="0.1"}}': f"0{STILL}"}, {"instance": "w0:9103"}
    ),
    "IrisOutputDropped": Case(
        {f"iris_worker_log_dropped_bytes_total{{{WORKER}}}": f"0{STEADY}"}, {"instance": "w0:9103"}
    ),
    "IrisBusDisconnected": Case({f"iris_bus_connected{{{WORKER}}}": f"0{STILL}"}, labels_of(WORKER)),
    "IrisBusReconnects": Case({f"iris_bus_reconnects_total{{{WORKER}}}": "0+1x180"}, labels_of(WORKER)),
    "IrisGatewayErrors": Case({f'iris_http_requests_total{{{GATEWAY}, status="503"}}': f"0{STEADY}"}),
    "IrisRoutesUnhealthy": Case({f'iris_deployment_routes{{{LEADER}, state="unhealthy"}}': f"1{STILL}"}),
    "IrisProxyErrors": Case({f'iris_proxy_requests_total{{{PROXY}, status="502"}}': f"0{STEADY}"}),
    "IrisVersionSkew": Case({f'iris_service_info{{{WORKER}, version="2"}}': f"1{STILL}"}),
}
