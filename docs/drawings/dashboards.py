"""deploy/grafana/dashboards/*.json: Grafana dashboards, made from one table of panels.

A query is PromQL with ``$__rate_interval``, which Grafana replaces. Every replica of the state
service shows the records, so queries of them keep the leader's (`leader`); counters of commits
exist on the leader only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DATASOURCE = "iris-prometheus"
"""The `uid` of the data source in deploy/grafana/provisioning."""

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_EVENTFUL = "its counter has no sample before the first such event"
_NO_COMMIT = "nothing was committed in the last minutes"
_NO_REQUEST = "nobody has asked in the last minutes"
_NO_POOL = "no pool is set, or none has made a slice"
_NO_DEPLOYMENT = "no deployment with a probe runs"


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph.

    Attributes:
        queries: PromQL and the legend of its series. unit: a unit of Grafana.
        empty: why it may have no data on a cluster at work; idle: why on one where little happens.
            Both go into its description; a panel without `empty` must have data on a cluster at
            work.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    empty: str = ""
    idle: str = ""


def leader(selector: str) -> str:
    """The series of the replica that leads."""
    return f"({selector} and on (cluster, instance) iris_leader == 1)"


def rate(selector: str) -> str:
    return f"rate({selector}[$__rate_interval])"


def per(labels: str, query: str) -> tuple[tuple[str, str], ...]:
    """The sum by ``labels``; the legend is their values."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in labels.split(","))
    return ((f"sum by ({labels}) ({query})", legend),)


def total(query: str, legend: str) -> tuple[tuple[str, str], ...]:
    return ((f"sum({query})", legend),)


def quantiles(histogram: str, by: str = "") -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile of a histogram, ``by`` one label or of everything."""
    labels, name = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    buckets = f"sum by ({labels}) ({rate(histogram)})"
    return tuple(
        (f"histogram_quantile({q}, {buckets})", f"p{q:.0%}".rstrip("%") + name) for q in (0.5, 0.99)
    )


def share(part: str, whole: str, legend: str) -> tuple[tuple[str, str], ...]:
    """A part of the whole: 0 where nothing counts as the part, of which there is no series then."""
    return ((f"(sum({part}) or vector(0)) / sum({whole})", legend),)


WORK: Mapping[str, Sequence[Panel]] = {
    "Progress": (
        Panel("Tasks by state", per("state", leader("iris_tasks"))),
        Panel("Jobs by state", per("state", leader("iris_jobs"))),
        Panel("Task state changes", per("to_state", rate("iris_task_transitions_total")), "ops"),
        Panel(
            "Run time of attempts",
            quantiles("iris_task_run_seconds_bucket"),
            "s",
            idle="no attempt has ended in the last minutes",
        ),
        Panel(
            "Resources committed",
            (
                (
                    f"sum by (resource) {leader('iris_resource_committed')}"
                    f" / (sum by (resource) {leader('iris_resource_capacity')} > 0)",
                    "{{resource}}",
                ),
            ),
            "percentunit",
        ),
    ),
    "Queue and reasons": (
        Panel("Waiting tasks by reason", per("reason", leader("iris_pending_tasks"))),
        Panel("Waiting tasks by band", per("band", leader("iris_pending_tasks"))),
        Panel("Longest wait", (("max(iris_oldest_pending_seconds)", "oldest job"),), "s"),
        Panel(
            "Slices missing",
            per("variant", leader("iris_demand_slices")),
            empty="nothing asks for TPU slices",
        ),
        Panel("Hosts missing", per("shape", leader("iris_demand_hosts"))),
        Panel("Tasks that lack a host", per("kind", leader("iris_demand_tasks"))),
        Panel(
            "Time from submission to placement",
            quantiles("iris_task_queue_wait_seconds_bucket"),
            "s",
            idle="nothing was placed in the last minutes",
        ),
    ),
    "Gangs and slices": (
        Panel(
            "Slices by state",
            per("variant, state", leader("iris_slices")),
            empty="there are no TPU slices",
        ),
        Panel("Sessions with a timeout running", per("status", leader("iris_sessions"))),
        Panel(
            "Tasks of gangs placed",
            total(rate('iris_scheduler_assignments_total{kind="gang"}'), "tasks"),
            "ops",
        ),
        Panel(
            "Results of handlers", per("handler, result", rate("iris_handler_results_total")), "ops"
        ),
    ),
    "Fleet": (
        Panel(
            "Slices of pools by status",
            per("pool, status", leader("iris_fleet_slices")),
            empty=_NO_POOL,
        ),
        Panel("Slices needed", per("pool", leader("iris_fleet_need_slices")), empty=_NO_POOL),
        Panel(
            "Time of slices by use",
            per("pool, use", leader(rate("iris_fleet_slice_seconds_total"))),
            empty=_NO_POOL,
        ),
        Panel(
            "Cost per hour",
            per("pool", f"3600 * {leader(rate('iris_fleet_cost_total'))}"),
            empty=_NO_POOL,
        ),
        Panel(
            "Time until a slice is ready",
            (
                (
                    "histogram_quantile(0.5, sum by (le, pool) ("
                    + rate("iris_fleet_boot_seconds_bucket")
                    + "))",
                    "{{pool}}",
                ),
            ),
            "s",
            empty=_NO_POOL,
        ),
        Panel(
            "Requests that came to nothing",
            per("pool, cause", rate("iris_fleet_refusals_total")),
            "ops",
            empty=_NO_POOL,
        ),
        Panel(
            "Halted pools, overdue deletions, orphans",
            (
                (f"sum({leader('iris_fleet_pool_paused')})", "halted pools"),
                (f"sum({leader('iris_fleet_slices_overdue')})", "overdue deletions"),
                (f"sum({leader('iris_fleet_orphans')})", "orphans"),
            ),
            empty=_NO_POOL,
        ),
    ),
    "Retries and preemption": (
        Panel("Attempts ended by cause", per("cause", rate("iris_attempts_ended_total")), "ops"),
        Panel(
            "Attempts charged to a budget",
            per("charged_to", rate('iris_attempts_ended_total{charged_to!=""}')),
            "ops",
            _EVENTFUL,
        ),
        Panel(
            "Tasks that wait again, by earlier state",
            per("from_state", rate('iris_task_transitions_total{to_state="pending"}')),
            "ops",
            _EVENTFUL,
        ),
        Panel(
            "Attempts preempted", total(rate("iris_scheduler_evictions_total"), "attempts"), "ops"
        ),
    ),
}

CONTROL_PLANE: Mapping[str, Sequence[Panel]] = {
    "Services": (
        Panel("Processes up", per("job", 'up{job=~"iris-.+"}')),
        Panel("Leader (1) and standbys (0)", (("iris_leader", "{{instance}}"),)),
        Panel("Epoch", (("iris_epoch", "{{instance}}"),)),
        Panel(
            "Commits a standby has not applied",
            (('iris_consumer_pending{consumer="journal"}', "{{instance}}"),),
        ),
        Panel(
            "Times of records ahead of the host's clock",
            (("iris_times_ahead_seconds", "{{instance}}"),),
            "s",
        ),
        Panel(
            "Processes by version",
            (("count by (service, version) (iris_service_info)", "{{service}} {{version}}"),),
        ),
        Panel(
            "Processor time",
            per("job, instance", rate('process_cpu_seconds_total{job=~"iris-.+"}')),
            "percentunit",
        ),
        Panel(
            "Memory",
            (('process_resident_memory_bytes{job=~"iris-.+"}', "{{job}} {{instance}}"),),
            "bytes",
        ),
    ),
    "State and journal": (
        Panel("Time of a commit", quantiles("iris_commit_seconds_bucket"), "s", idle=_NO_COMMIT),
        Panel("Commits", total(rate("iris_commit_seconds_count"), "commits"), "ops"),
        Panel(
            "Processor time of a round",
            quantiles("iris_round_seconds_bucket"),
            "s",
            idle=_NO_COMMIT,
        ),
        Panel(
            "Events not published yet",
            (('sum(iris_consumer_pending{consumer="events"})', "events"),),
        ),
        Panel(
            "Memory of what is kept for a while", per("kind", leader("iris_kept_bytes")), "bytes"
        ),
        Panel(
            "Inputs set aside",
            per("kind", "iris_inputs_set_aside_total"),
            empty="only a bug causes them",
        ),
        Panel("Dead letters", (("max(iris_dead_letters_total)", "commands"),)),
    ),
    "Scheduler": (
        Panel(
            "Time of a plan",
            quantiles("iris_scheduler_cycle_seconds_bucket"),
            "s",
            idle="nothing was planned in the last minutes",
        ),
        Panel("Plans", total(rate("iris_scheduler_cycle_seconds_count"), "plans"), "ops"),
        Panel("Tasks placed", per("kind", rate("iris_scheduler_assignments_total")), "ops"),
        Panel(
            "Placements refused",
            per("cause", rate("iris_assignments_refused_total")),
            "ops",
            _EVENTFUL,
        ),
        Panel(
            "Age of the scheduler's records", (("iris_snapshot_age_seconds", "{{instance}}"),), "s"
        ),
    ),
    "Bus": (
        Panel("Processes connected to NATS", per("job", "iris_bus_connected")),
        Panel("Reconnections in 5 minutes", per("job", "increase(iris_bus_reconnects_total[5m])")),
    ),
    "Gateway": (
        Panel(
            "Requests by route",
            per("route", rate("iris_http_requests_total")),
            "reqps",
            idle=_NO_REQUEST,
        ),
        Panel(
            "Requests by status",
            per("status", rate("iris_http_requests_total")),
            "reqps",
            idle=_NO_REQUEST,
        ),
        Panel(
            "Time of a request",
            quantiles('iris_http_request_seconds_bucket{route!~".*(events|logs).*"}'),
            "s",
            idle=_NO_REQUEST,
        ),
        Panel("Refusals by code", per("code", rate("iris_http_problems_total")), "ops", _EVENTFUL),
        Panel("Event and log streams open", per("instance", "iris_http_watchers")),
    ),
}

_ONE_SERVER = "there is one NATS server"

STORAGE: Mapping[str, Sequence[Panel]] = {
    "NATS servers": (
        Panel(
            "Servers that answer",
            (("min by (server) (iris_nats_server_up)", "{{server}}"),),
            empty=_ONE_SERVER,
        ),
        Panel(
            "Copies that lack, by stream",
            (
                (
                    'max by (store) (iris_store_copies{kind="wanted"})'
                    ' - max by (store) (iris_store_copies{kind="current"})',
                    "{{store}}",
                ),
            ),
        ),
        Panel(
            "Consumers behind",
            (("max by (instance, consumer) (iris_consumer_pending)", "{{instance}} {{consumer}}"),),
        ),
        Panel(
            "Copies that streams are declared with",
            (('max by (store) (iris_store_copies{kind="declared"})', "{{store}}"),),
        ),
    ),
    "Stored": (
        Panel("Stored by stream", (("max by (store) (iris_stored_bytes)", "{{store}}"),), "bytes"),
        Panel(
            "Stored of what may be",
            (
                (
                    "max by (store) (iris_stored_bytes) / max by (store) (iris_store_limit_bytes)",
                    "{{store}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Stored by server, of what it may store",
            (
                (
                    'max by (server) (iris_nats_server_storage_bytes{kind="stored"})'
                    ' / (max by (server) (iris_nats_server_storage_bytes{kind="limit"}) > 0)',
                    "{{server}}",
                ),
                (
                    'max by (server) (iris_nats_server_storage_bytes{kind="reserved"})'
                    ' / (max by (server) (iris_nats_server_storage_bytes{kind="limit"}) > 0)',
                    "{{server}}, reserved",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Free disk",
            (("iris_disk_free_bytes / iris_disk_size_bytes", "{{instance}} {{path}}"),),
            "percentunit",
            "no process was told to watch a disk",
        ),
        Panel(
            "Age of the last backup",
            (("time() - max(iris_last_backup_timestamp_seconds > 0)", "backup"),),
            "s",
            "there has been no backup",
        ),
        Panel(
            "Failures of collectors",
            per("collector", "iris_collector_failures_total"),
            empty="only a bug causes them",
        ),
        Panel(
            "Time until certificates expire",
            (
                (
                    "iris_certificate_expiry_timestamp_seconds - time()",
                    "{{job}} {{instance}} {{certificate}}",
                ),
            ),
            "s",
            "no process uses a certificate",
        ),
    ),
}

HOSTS_AND_SERVING: Mapping[str, Sequence[Panel]] = {
    "Workers": (
        Panel("Workers by state", per("state", leader("iris_workers"))),
        Panel("Attempts on workers", total("iris_worker_attempts", "attempts")),
        Panel(
            "Delay of heartbeats",
            quantiles("iris_heartbeat_lag_seconds_bucket"),
            "s",
            idle="there are no workers",
        ),
        Panel(
            "Time of the steps before a task",
            quantiles("iris_build_seconds_bucket", "step"),
            "s",
            idle="no attempt has begun in the last minutes",
        ),
        Panel(
            "Reports to the state service", per("result", rate("iris_worker_reports_total")), "ops"
        ),
        Panel(
            "Time of a check of a host",
            quantiles("iris_worker_check_seconds_bucket", "result"),
            "s",
            empty="no worker has a check",
        ),
        Panel(
            "Output dropped", total(rate("iris_worker_log_dropped_bytes_total"), "output"), "Bps"
        ),
    ),
    "Deployments": (
        Panel("Routes by state", per("state", leader("iris_deployment_routes"))),
        Panel("Routes wanted", total(leader("iris_deployment_wanted_routes"), "routes")),
        Panel(
            "Deployments whose load is not known",
            total(leader("iris_deployment_load_unknown"), "deployments"),
        ),
        Panel("Probes by result", per("result", rate("iris_route_probe_seconds_count")), "ops"),
        Panel(
            "Time of a probe",
            quantiles("iris_route_probe_seconds_bucket"),
            "s",
            idle=_NO_DEPLOYMENT,
        ),
    ),
    "Proxy": (
        Panel(
            "Requests by status",
            per("status", rate("iris_proxy_requests_total")),
            "reqps",
            idle=_NO_REQUEST,
        ),
        Panel(
            "Time of a request",
            quantiles("iris_proxy_request_seconds_bucket"),
            "s",
            idle=_NO_REQUEST,
        ),
        Panel("Requests sent again", total(rate("iris_proxy_retries_total"), "requests"), "ops"),
        Panel(
            "Share of requests that failed",
            share(
                rate('iris_proxy_requests_total{status=~"5.."}'),
                rate("iris_proxy_requests_total"),
                "5xx",
            ),
            "percentunit",
            _EVENTFUL,
        ),
    ),
    "Fleet": (
        Panel(
            "Calls of providers",
            per("provider, call, answer", rate("iris_provider_calls_total")),
            "ops",
            empty=_NO_POOL,
        ),
        Panel(
            "Time of a call of a provider",
            quantiles("iris_provider_call_seconds_bucket", by="call"),
            "s",
            empty=_NO_POOL,
        ),
    ),
}

PEOPLE: Mapping[str, Sequence[Panel]] = {
    "Notifications": (
        Panel(
            "Messages that ended",
            per("result", rate("iris_notify_deliveries_total")),
            "ops",
            _EVENTFUL,
        ),
        Panel("Tries", per("result", rate("iris_notify_tries_total")), "ops", _EVENTFUL),
        Panel("Messages that wait", (("sum(iris_notify_pending)", "messages"),)),
        Panel("Targets by state", per("state", "iris_notify_targets")),
    ),
    "Who waits": (
        Panel("Waiting tasks by user", per("user", leader("iris_user_pending_tasks"))),
        Panel("Waiting tasks by project", per("project", leader("iris_project_pending_tasks"))),
        Panel(
            "Longest wait by user",
            (
                (
                    f"max by (user, waiting_job) {leader('iris_user_oldest_pending_seconds')}",
                    "{{user}} {{waiting_job}}",
                ),
            ),
            "s",
        ),
    ),
    "Use by team": (
        Panel("Running tasks by project", per("project", leader("iris_project_running_tasks"))),
        Panel(
            "Devices held by project",
            per("project", leader('iris_project_held{resource="chips"}')),
            empty="nothing asks for devices",
        ),
        Panel(
            "Processors held by project",
            (
                (
                    f"""sum by (project) ({leader('iris_project_held{resource="cpu_millis"}')}) / 1000""",
                    "{{project}}",
                ),
            ),
        ),
    ),
    "Limits of projects": (
        Panel(
            "Part of a limit that is used",
            (
                (
                    f"max by (path, resource) ({leader('iris_project_limit_used')})"
                    f" / max by (path, resource) ({leader('iris_project_limit')})",
                    "{{path}} {{resource}}",
                ),
            ),
            "percentunit",
            empty="no project has a limit on what runs",
        ),
    ),
    "Use by user": (
        Panel("Running tasks by user", per("user", leader("iris_user_running_tasks"))),
        Panel(
            "Devices held by user",
            per("user", leader('iris_user_held{resource="chips"}')),
            empty="nothing asks for devices",
        ),
        Panel(
            "Memory held by user",
            per("user", leader('iris_user_held{resource="memory_bytes"}')),
            "bytes",
            empty="nothing asks for memory",
        ),
        Panel(
            "Output stored by user",
            per("user", leader('iris_user_stored_bytes{kind="output"}')),
            "bytes",
            empty="nothing is stored",
        ),
    ),
    "Failures by host": (
        Panel(
            "Failed attempts of the last hour by host",
            per("host", leader("iris_host_failures")),
            empty="no attempt has failed in the last hour",
        ),
        Panel(
            "Failed attempts of the last hour by host and cause",
            per("host, cause", leader("iris_host_failures")),
            empty="no attempt has failed in the last hour",
        ),
        Panel(
            "Hosts that are lost or degraded",
            per("host, state", leader("iris_host_unwell")),
            empty="every host is well",
        ),
    ),
}

DASHBOARDS: Mapping[str, tuple[str, Mapping[str, Sequence[Panel]]]] = {
    "iris-work": ("Iris: work", WORK),
    "iris-people": ("Iris: people, projects and failures of hosts", PEOPLE),
    "iris-control-plane": ("Iris: control plane", CONTROL_PLANE),
    "iris-storage": ("Iris: storage", STORAGE),
    "iris-hosts-and-serving": ("Iris: hosts and serving", HOSTS_AND_SERVING),
}


_CLUSTER = {
    "name": "cluster",
    "label": "Cluster",
    "type": "query",
    "datasource": {"type": "prometheus", "uid": DATASOURCE},
    "query": 'label_values(up{job=~"iris-.+"}, cluster)',
    "refresh": 2,
    "sort": 1,
}
_SERIES = re.compile(r"\b((?:iris|process)_\w+|up\b)(?:\{([^}]*)\})?")


def of_cluster(query: str) -> str:
    """The query of the cluster that is chosen at the top of a dashboard."""

    def chosen(found: re.Match[str]) -> str:
        return (
            found[1]
            + "{"
            + ", ".join(part for part in (found[2], 'cluster=~"$cluster"') if part)
            + "}"
        )

    return _SERIES.sub(chosen, query)


def panels() -> Iterator[Panel]:
    """Every panel of every dashboard."""
    for _, rows in DASHBOARDS.values():
        for row in rows.values():
            yield from row


def dashboard_document(uid: str) -> str:
    """One dashboard as Grafana provisions it."""
    title, rows = DASHBOARDS[uid]
    document = {
        "uid": uid,
        "title": title,
        "tags": ["iris"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_CLUSTER]},
        "panels": list(_placed(rows)),
    }
    return json.dumps(document, indent=2) + "\n"


def _placed(rows: Mapping[str, Sequence[Panel]]) -> Iterator[dict[str, Any]]:
    """Each row's title, then its panels, three side by side."""
    number = y = 0
    for title, row in rows.items():
        number += 1
        place = {"x": 0, "y": y, "w": _WIDTH * _COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": place,
        }
        y += 1
        for at, panel in enumerate(row):
            number += 1
            line, column = divmod(at, _COLUMNS)
            place = {"x": column * _WIDTH, "y": y + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _graph(number, panel) | {"gridPos": place}
        y += _HEIGHT * -(-len(row) // _COLUMNS)


def _graph(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": DATASOURCE}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": f"May be empty: {why}." if (why := panel.empty or panel.idle) else "",
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": source,
                "expr": of_cluster(query),
                "legendFormat": legend,
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
