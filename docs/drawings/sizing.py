"""docs/sizing.md: what each service needs, from the newest whole run of each row in
benchmarks/results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawings.markdown import document, grid
from iris_core.subjects import ARTIFACTS, DAY_S, EVENTS, LOGS, STREAMS
from iris_core.subjects import RESULTS as CALL_RESULTS
from iris_gateway.settings import GatewaySettings
from iris_state.policy import Policy

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
SERVICES = ("state", "nats", "scheduler", "gateway", "worker")
ROWS = ("B1", "B1b", "B2", "B3", "B4", "B5e", "B6", "B7", "B9", "B10", "B13", "B14")

EXPLAINED = """\
Figures are measured, with every write of the journal synced to disk, on one machine that ran all services and the
load at once. Another machine has others: `make bench` measures yours. [Performance](./performance.md) explains rows."""
CPU_EXPLAINED = """\
CPU time of each service from submission to end: for a task that does nothing, of a job of 10,000 (B1); for one that is
a process of its own, `/bin/true` (B2); for a gang of four processes, each gang a job (B5e); for a process of its own
where 40 arrive in a second, each a job (B13). `worker` is the sum over all hosts. Where few arrive, each is decided,
stored and told alone, which costs many times more than among hundreds: so a busy cluster costs less than this column
promises. The state service computes on one core, so a core of its leader bounds the cluster."""
DISK_EXPLAINED = """\
Every stream and bucket has a limit ([all of them](operating.md#what-is-kept-and-how-much-of-it)); the large ones are
below. Each of three servers needs that much. The journal is cut behind each snapshot."""
WHERE = """\
* **The disk of NATS** decides the latency of a submission, because it is answered when it is synced
  (`iris_commit_seconds`). Use local disks, and no network file system.
* **NATS needs three hosts**, or a majority is not left when one is off; two of them take the other services of the
  control plane too ([three machines](three-machines.md)).
* **Schedulers, gateways and proxies** keep nothing that has to be kept. One of each carries the load; a second one is
  there when the first is not.
* **Nothing of a worker's host is set aside** for the worker and the system: declare a little less than there is by
  `cpu_millis` and `memory_bytes` of `[worker]`."""


def measured() -> dict[str, dict[str, Any]]:
    """The newest run of each row that was not shortened, with its day as ``day`` and its machine as
    ``machine``.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text())
        if not record["machine"]["quick"]:
            found |= {
                row["row"]: {**row, "day": path.name[:10], "machine": record["machine"]}
                for row in record["rows"]
            }
    return found


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def cpu(rows: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    costs = [
        *(rows[row]["detail"]["cpu_us_per_task"] for row in ("B1", "B2")),
        rows["B5e"]["detail"]["cpu_us_per_gang"],
        rows["B13"]["detail"]["cpu_us_per_task"],
    ]
    for service in SERVICES:
        yield [f"`{service}`", *(f"{cost[service]:,g} µs" for cost in costs)]


def heartbeats(rows: dict[str, dict[str, Any]]) -> str:
    shares = rows["B6"]["detail"]["percent_of_a_core"]
    return (
        f"The heartbeats of 10,000 hosts, one each 5 s, take {shares['state']:g} % of a core of the state service and "
        f"{shares['nats']:g} %\nof one of NATS (B6)."
    )


def memory(rows: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    runs = [rows[row]["detail"]["rss_bytes"] for row in ("B1", "B1b")]
    for service in SERVICES:
        yield [f"`{service}`", *(megabytes(run[service]) for run in runs)]


def memory_words(rows: dict[str, dict[str, Any]]) -> str:
    policy, each = Policy(), rows["B1b"]["detail"]["state_bytes_per_finished_task"]["1000000"]
    kept = (policy.keep_jobs_bytes + policy.keep_keys_bytes + policy.keep_answers_bytes) / (1 << 30)
    return (
        "Resident memory after 10,000 tasks (B1) and after 1,000,000 (B1b), where a finished task takes "
        f"{each} bytes of the\nstate service. It keeps at most {kept:.3g} GiB of finished jobs, keys and answers "
        f"(`keep_jobs_bytes` and its like).\nThe scheduler had {megabytes(rows['B4']['rss_bytes'])} with 100,000 "
        "waiting tasks and 10,000 hosts (B4)."
    )


def disk() -> Iterator[tuple[str, str, str]]:
    yield "`IRIS_EVENTS`", f"{EVENTS.max_bytes >> 30} GiB", f"{EVENTS.max_age_s / DAY_S:g} days"
    yield "`IRIS_LOGS`", f"{LOGS.max_bytes >> 30} GiB", f"{LOGS.max_age_s / DAY_S:g} days"
    yield (
        "`IRIS_ARTIFACTS`",
        f"{ARTIFACTS.max_bytes >> 30} GiB",
        f"{ARTIFACTS.max_age_s / DAY_S:g} days",
    )
    yield (
        "`IRIS_RESULTS`",
        f"{CALL_RESULTS.max_bytes >> 30} GiB",
        f"{CALL_RESULTS.max_age_s / DAY_S:g} days",
    )
    yield (
        "`iris-bundles`",
        f"{GatewaySettings().bundles_bytes >> 30} GiB",
        f"{Policy().keep_bundles_days:g} days unused",
    )


def disk_words(rows: dict[str, dict[str, Any]]) -> str:
    reserved = sum(stream.max_bytes for stream in STREAMS) / (1 << 30)
    journal = megabytes(rows["B1"]["detail"]["journal_bytes_per_task"] * 1e6)
    return (
        f"A NATS server reserves {reserved:g} GiB for streams with a limit when they are made, and refuses to make\n"
        "them (error 10047) where it may store less: so much has to be free, or `events_bytes`, `logs_bytes`,\n"
        "`results_bytes` and `artifacts_bytes` of `[nats]` be smaller. A million tasks of large jobs without output "
        f"add {journal}\nto the journal of each server (B1), until the next snapshot."
    )


def times(rows: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    started, seven = rows["B3"]["detail"]["started_ms"], rows["B7"]
    yield (
        "a submission until its process runs, idle cluster",
        f"{started['p50']} ms, p99 {started['p99']} ms",
        "B3",
    )
    yield "a plan for 100,000 tasks on 10,000 hosts", f"{rows['B4']['value']:g} ms", "B4"
    yield (
        "a standby leads after kill -9 of the leader",
        f"{max(seven['detail']['take_over_s'])} s",
        "B7",
    )
    yield "start of a state service with 1,000,000 tasks", f"{seven['value']} s", "B7"
    yield (
        "a page or list, 40 clients with one request a second each",
        f"p99 {rows['B14']['value']:g} ms",
        "B14",
    )
    if nine := rows.get("B9"):
        yield "durable submissions over HTTP, 64 clients", f"{nine['value']:,.0f}/s", "B9"
    if ten := rows.get("B10"):
        yield "requests through one process of the proxy", f"{ten['value']:,.0f}/s", "B10"


def runs(rows: dict[str, dict[str, Any]]) -> str:
    shown = (row for name, row in rows.items() if name in ROWS)
    machines = {
        f"{row['day']} ({row['machine']['cores']} cores{_load(row['machine'])})" for row in shown
    }
    return f"Runs of {', '.join(sorted(machines))}, kept in `benchmarks/results`."


def _load(machine: dict[str, Any]) -> str:
    """What else wanted to run on the machine, where that was noted and is more than nothing."""
    return f", beside a load of {machine['load']:g}" if machine.get("load", 0) >= 1 else ""


def sizing_document() -> str:
    """The page."""
    rows = measured()
    return document(
        "Sizing",
        "benchmarks/results and the settings",
        EXPLAINED,
        "## CPU",
        CPU_EXPLAINED,
        grid(["service", "no-op task", "process", "gang of four", "process, 40/s"], cpu(rows)),
        heartbeats(rows),
        "## Memory",
        memory_words(rows),
        grid(["service", "10,000 tasks", "1,000,000 tasks"], memory(rows)),
        "## Disk",
        DISK_EXPLAINED,
        grid(["where", "at most", "kept for"], disk()),
        disk_words(rows),
        "## Times",
        grid(["what", "measured", "row"], times(rows)),
        "## Which machines",
        WHERE,
        runs(rows),
    )
