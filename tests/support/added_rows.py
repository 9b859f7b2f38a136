"""A test resource and a test limit, added as CONTRIBUTING describes, and everything that shows
them.

Run as a program, in a process of its own: the sources of three modules are read, the lines of
`ADDED` inserted, and only then is anything else imported. Prints JSON: for each place whether the
new name is in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

RESOURCE, LIMIT = "gpu_memory_bytes", "max_jobs"
ADDED = {
    "iris_core.spec.resources": (
        (
            '    Resource("chips",',
            '    Resource("gpu_memory_bytes", "gpu_memory", BYTES, 1 << 50, scarcity=4),',
        ),
        (
            "    device: Device | None = None\n",
            '    gpu_memory_bytes: Annotated[int, up_to_largest("gpu_memory_bytes")] = 0',
        ),
        ("    chips: int = 0\n", "    gpu_memory_bytes: int = 0"),
        ("    chips: Declared = None\n", "    gpu_memory_bytes: Declared = None"),
        ("    disk: int | str | None\n", "    gpu_memory: int | str | None"),
    ),
    "iris_core.quota": (
        (
            '        "max_pending_tasks", "pending tasks", "tasks that wait; a job that would pass it is refused"\n    ),',
            '    UserLimit("max_jobs", "jobs", "live jobs; one more is refused"),',
        ),
        ("    max_live_bytes: int = 0\n", "    max_jobs: int = 0"),
    ),
    "iris_state.decide.quota": (
        (
            "        frees=lambda ledger, job: job.counts[TaskState.PENDING],\n    ),\n",
            '    "max_jobs": Counted(lambda ledger, user: len(ledger.jobs), lambda added: 1, lambda ledger, job: 1),',
        ),
    ),
}
"""By module: behind which line, and the new line."""


def add(name: str) -> ModuleType:
    """Import a module with its lines of `ADDED`."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text()
    for before, line in ADDED[name]:
        assert text.count(before) == 1, f"{name}: {before!r}"
        end = text.index("\n", text.index(before) + len(before) - 1) + 1
        text = text[:end] + line + "\n" + text[end:]
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    parent, _, own = name.rpartition(".")
    setattr(importlib.import_module(parent), own, module)
    return module


def command_line() -> dict[str, bool]:
    from click.testing import CliRunner

    from iris.cli.commands.operate.quota import describe, quota
    from iris.cli.commands.operate.worker import COLUMNS
    from iris.cli.commands.run.run import run
    from iris_core.quota import QUOTA_LIMITS
    from iris_core.spec.resources import ResourceRequest
    from iris_core.views.spec_facts import resource_facts

    found = {name: 2 for limit in QUOTA_LIMITS for name in (limit.name, limit.used)} | {
        "user": "ann",
        "max_band": "x",
    }
    return {
        "iris run --help": "--gpu-memory SIZE" in CliRunner().invoke(run, ["--help"]).output,
        "iris quota set --help": "--max-jobs N"
        in CliRunner().invoke(quota, ["set", "--help"]).output,
        "iris quota show": ("jobs", "2 of 2") in describe(found),
        "iris show": ("gpu memory", "4GiB")
        in resource_facts(ResourceRequest(**{RESOURCE: 4 << 30})),
        "iris worker list": "GPU MEMORY" in [column.title for column in COLUMNS],
    }


def http() -> dict[str, bool]:
    from iris_gateway.api import ENDPOINTS
    from iris_gateway.dashboard.render import environment
    from iris_gateway.dispatch.openapi import describe

    schemas = describe(ENDPOINTS, "1")["components"]["schemas"]
    host = {RESOURCE: 1 << 30, "cpu_millis": 1, "memory_bytes": 1, "disk_bytes": 1, "chips": 1}
    parts: Any = environment().get_template("parts.html").module
    return {
        "OpenAPI: a job": RESOURCE in schemas["ResourceRequest"]["properties"],
        "OpenAPI: setting a quota": LIMIT in schemas["QuotaBody"]["properties"],
        "OpenAPI: a quota": {LIMIT, "jobs"} <= schemas["QuotaView"]["properties"].keys(),
        "page of a worker": "<span>gpu memory</span>" in parts.amounts(host, host),
    }


def services() -> dict[str, bool]:
    from msgspec import structs

    from drawings.configuration import configuration_document
    from iris.client.options.jobs import job_spec
    from iris_core.admission.jobs import validate_spec
    from iris_core.placement.reasons import ReasonCode
    from iris_worker.host.devices import Accelerators
    from iris_worker.host.host import total
    from iris_worker.settings import WorkerSettings
    from tests.support.scheduling import Story, worker

    spec = job_spec(["true"], {"name": "/big", "gpu_memory": "80GiB"}, {})
    wrong = validate_spec(job_spec(["true"], {"name": "/big", "gpu_memory": f"{1 << 60}"}, {}))
    story = Story(worker("w0"))
    row = story.submit("/big")
    story.tell(jobs=(structs.replace(row, resources=spec.resources),))
    story.cycle()
    text = configuration_document()
    return {
        "SDK": spec.resources.gpu_memory_bytes == 80 << 30,
        "admission": [mistake.pointer for mistake in wrong] == [f"/resources/{RESOURCE}"],
        "scheduler": story.reasons["/big"].code is ReasonCode("not_enough_gpu_memory"),
        "worker": total(WorkerSettings(data=".", gpu_memory_bytes=7), Accelerators(), "").values[-1]
        == 7,
        "docs/configuration.md": f"| `{RESOURCE}` |" in text and f"| `{LIMIT}` |" in text,
    }


def state() -> dict[str, bool]:
    from iris_core.spec.resources import Amount
    from iris_state.replication.metrics import LedgerCollector
    from tests.support.script import Script
    from tests.support.world import Host

    script = Script()
    script.world.register(Host("w0", Amount(4000, 0, 0, 0, 5), {}))
    script.play("""
        quota ann max_jobs=1
        submit /a user=ann   -> created
        submit /b user=ann   -> over_quota
    """)
    quota = script.world.query("quota", user="ann")
    gauges = [
        sample
        for family in LedgerCollector(lambda: script.world.machine).collect()
        for sample in family.samples
    ]
    return {
        "metrics": [s.value for s in gauges if s.labels.get("resource") == RESOURCE] == [5, 0],
        "quota": (quota["max_jobs"], quota["jobs"]) == (1, 1),
        "worker's view": script.world.query("worker", id="w0")["total"][RESOURCE] == 5,
    }


def main() -> None:
    for name in ADDED:
        add(name)
    print(json.dumps(command_line() | http() | services() | state()))


if __name__ == "__main__":
    main()
