"""A gateway with one object of each kind for its pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from iris_core.codec import to_json
from iris_core.messages.gateway_state import Answer
from iris_core.placement.reasons import Reason, ReasonCode
from iris_core.views.fleet import (
    PoolChangeView,
    PoolView,
    ReservationView,
    SliceCountView,
    SliceHostView,
    SliceStepView,
    SliceView,
)
from iris_core.views.jobs import ActorView
from iris_core.views.projects import ProjectView
from iris_core.views.usage import StoredUsageView, UsageView, UsedView
from tests.support.fake_state import FakeState, attempt_of
from tests.support.gateway import House

WORKER = {
    "id": "w 0",
    "state": "degraded",
    "attributes": {"zone": "eu-1"},
    "total": {"cpu_millis": 8000, "memory_bytes": 1 << 30, "disk_bytes": 0, "chips": 4},
    "committed": {"cpu_millis": 500, "memory_bytes": 0, "disk_bytes": 0, "chips": 4},
    "tasks": ["/a/0"],
    "task_ids": ["j1/0"],
    "building": 1,
    "last_heartbeat_at": "2026-01-31T08:00:00Z",
    "registered_at": "2026-01-31T08:00:00Z",
    "version": "0.1.0",
    "task_count": 1,
    "detail": "disk is full",
}
QUEUED = {
    "position": 0,
    "task": "/a/0",
    "job": "/a",
    "user": "ada",
    "band": "batch",
    "depth": 1,
    "root_submitted_at": None,
    "submitted_at": None,
    "sequence": 1,
    "id": "j1/0",
    "job_id": "j1",
    "tasks": 3,
    "pending_reason": {"code": "no_workers", "message": "no worker has registered"},
}
SESSION = {
    "id": "j1-0",
    "job": "/a",
    "job_id": "j1",
    "status": "running",
    "since": None,
    "tries": {"start": 2},
    "kernels": [],
}
DEAD_LETTER = {"number": 1, "request_id": "r-1", "detail": "<b>KeyError</b>"}
QUOTA = {
    "user": "ada",
    "running_cpu": 500,
    "running_memory": 0,
    "running_accelerators": 0,
    "pending_tasks": 1,
}
QUOTA |= {
    "max_running_cpu": 2000,
    "max_running_memory": 0,
    "max_running_accelerators": 0,
    "max_pending_tasks": 0,
}
QUOTA |= {"max_band": "batch"}


ROUTE = {
    "id": "r1-1",
    "deployment": "chat",
    "job": "/chat/r1-1",
    "status": "unhealthy",
    "revision": 1,
    "worker": "w 0",
    "address": "127.0.0.1:31000",
    "since": "2026-01-31T08:00:00Z",
    "created_at": "2026-01-31T08:00:00Z",
    "ready": True,
    "available": False,
    "discovered": False,
    "detail": "<b>503</b> from /healthz",
    "pending_reason": None,
    "requests_per_s": 0.5,
    "job_id": "j9",
}
DEPLOYMENT = {
    "id": "d1",
    "name": "chat",
    "status": "deploying",
    "user": "ada",
    "revision": 2,
    "stable_revision": 1,
    "replicas": 3,
    "ready": 2,
    "live": 3,
    "spec": {
        "name": "chat",
        "template": {"command": ["serve", "a b"]},
        "scaling": {"minimum": 0, "maximum": 5},
    },
    "revisions": [1, 2],
    "created_at": "2026-01-31T08:00:00Z",
    "since": "2026-01-31T08:00:00Z",
    "update": {
        "revision": 2,
        "new": 1,
        "available": 0,
        "old": 2,
        "paused": True,
        "waiting_for": None,
        "progress_at": "2026-01-31T08:00:00Z",
        "falls_back_from": None,
    },
    "conditions": [{"code": "paused", "message": "one new route serves; it waits to be resumed"}],
    "scaling": {
        "load": 24.0,
        "held": None,
        "last": "2 -> 3: load of 24",
        "last_at": "2026-01-31T08:00:00Z",
    },
    "routes": [ROUTE],
    "requests_per_s": 1234.0,
    "version": 7,
}
DECISIONS = [
    {
        "entity": entity,
        "handler": handler,
        "from": "provisioning",
        "to": "healthy",
        "result": "SUCCESS",
        "reason": reason,
        "attempts": 1,
        "first_at": "2026-01-31T08:00:00Z",
        "last_at": "2026-01-31T08:00:00Z",
    }
    for entity, handler, reason in (
        ("chat", "ScalingDeployment", ""),
        ("chat/r1-1", "HealthCheckRoute", "<b>503</b>"),
    )
]


AUDITED = {
    "number": 1,
    "at": "2026-01-31T08:00:00Z",
    "by": {
        "name": "mia",
        "user": "mia",
        "role": "admin",
        "task": None,
        "token": "laptop",
        "address": "10.0.0.3",
    },
    "action": "cancel",
    "kind": "job",
    "id": "j1",
    "name": "/a",
    "owner": "ada",
    "detail": "<b>it burns</b>",
}


USAGE = msgspec.to_builtins(
    UsageView(
        user="ada",
        total=UsedView(
            attempts=3, cpu_seconds=7200.0, chip_seconds={"H100": 3600.0}, cpu_used_seconds=1800.0
        ),
        useful=UsedView(attempts=2, cpu_seconds=3600.0, chip_seconds={"H100": 2700.0}),
        lost={"preempted": UsedView(attempts=1, cpu_seconds=3600.0, chip_seconds={"H100": 900.0})},
        running=UsedView(),
        billed=UsedView(attempts=2, cpu_seconds=3600.0, chip_seconds={"H100": 2700.0}),
    )
)


STORED = msgspec.to_builtins(
    StoredUsageView(
        user="ada",
        jobs=1,
        job_bytes=700,
        output_bytes=3 << 20,
        result_bytes=2048,
        bundle_bytes=5 << 10,
    )
)


POOL = msgspec.to_builtins(
    PoolView(
        name="cpu",
        provider="exec",
        options={"program": "<b>cloud</b>"},
        hosts=2,
        resources={"cpu_millis": 2000, "memory_bytes": 1 << 30, "disk_bytes": 0, "chips": 0},
        attributes={"zone": "eu-1"},
        capacity="spot",
        min=0,
        max=6,
        buffer=0,
        priority=100,
        price=0.5,
        idle_s=600,
        boot_timeout_s=900,
        create_rate=10,
        delete_rate=10,
        reservation=ReservationView(name="bought", chips=64),
        only="",
        paused=False,
        state="exhausted",
        reason="<b>stockout</b>",
        since=datetime(2026, 1, 31, 8, tzinfo=UTC),
        until=datetime(2126, 1, 31, 9, tzinfo=UTC),
        slices=SliceCountView(requested=1, ready=2, draining=1),
        idle=1,
        idle_since=datetime(2026, 1, 31, 8, tzinfo=UTC),
        need=3,
        boot_p50_s=170.0,
        boot_p90_s=240.0,
        cost_per_hour=1.5,
        warnings=["2 of 6 slots have no keys and are not used"],
        version=3,
        by=ActorView(name="mia", user="mia", role="admin"),
        removing=False,
    )
)
SLICE = msgspec.to_builtins(
    SliceView(
        id="s7",
        name="cpu-0",
        pool="cpu",
        status="ready",
        since=datetime(2026, 1, 31, 8, tzinfo=UTC),
        cause="registered",
        detail="<b>running</b>",
        hosts=[
            SliceHostView(name="cpu-0-0", state="healthy", differs=[]),
            SliceHostView(name="cpu-0-1", state="mismatch", differs=["cpu_millis 1000, not 2000"]),
        ],
        requested_at=datetime(2026, 1, 31, 7, 57, tzinfo=UTC),
        ready_at=datetime(2026, 1, 31, 8, tzinfo=UTC),
        idle_since=datetime(2026, 1, 31, 8, tzinfo=UTC),
        deadline_at=None,
        cost=0.25,
        outdated=True,
        overdue=False,
        steps=[
            SliceStepView(
                at=datetime(2026, 1, 31, 7, 57, tzinfo=UTC),
                was=None,
                to="requested",
                cause="need",
                by=None,
            ),
            SliceStepView(
                at=datetime(2026, 1, 31, 8, tzinfo=UTC),
                was="creating",
                to="ready",
                cause="registered",
                by=None,
            ),
        ],
    )
)
CHANGE = msgspec.to_builtins(
    PoolChangeView(
        at=datetime(2026, 1, 31, 8, tzinfo=UTC),
        slice="cpu-0",
        id="s7",
        was="ready",
        to="draining",
        cause="operator",
        detail="<b>repairs</b>",
        by=ActorView(name="mia", user="mia", role="admin"),
    )
)
UNMET = {
    "example": "/a",
    "tasks": 12,
    "pools": [{"pool": "cpu", "code": "at_max", "message": "at its maximum (6)", "until": None}],
}
FLEET = {
    "pools": [POOL],
    "slices": POOL["slices"],
    "idle": 1,
    "need": 3,
    "cost_per_hour": 1.5,
    "orphans": 1,
    "listed_at": None,
    "dry_run": True,
    "unmet": [UNMET],
    "changes": [CHANGE],
}
PROJECT = msgspec.to_builtins(
    ProjectView(
        path="/research",
        parent="/",
        children=[],
        limit={"cpu_millis": 4000},
        max_pending_tasks=10,
        members=["ada"],
        admins=["lin"],
        default_for=["ada"],
        used={"cpu_millis": 500, "memory_bytes": 0, "chips": 0},
        running_tasks=1,
        pending_tasks=1,
        version=1,
        by=None,
        warnings=["it is the default of bob, who may not submit to it"],
    )
)


def listing(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": "7"}


def pages_of(state: FakeState) -> dict[str, dict[str, Any]]:
    return {
        "tasks": listing(*state.tasks.values()),
        "history": listing(),
        "latest_history": {**listing(), "total": 0, "is_least": False},
        "queue": listing(QUEUED),
        "queue_holds": {"items": [], "next_cursor": None},
        "gated_jobs": {"items": [], "next_cursor": None},
        "workers": listing(WORKER),
        "worker": WORKER,
        "slices": {"items": []},
        "sessions": listing(SESSION),
        "users": listing(QUOTA),
        "usage": {"items": [USAGE], "next_cursor": None},
        "stored_usage": {"items": [STORED], "next_cursor": None},
        "projects": listing(PROJECT),
        "project": PROJECT,
        "memberships": {"memberships": {}},
        "audit": listing(AUDITED),
        "why": {"ahead": 4},
        "deployments": listing(DEPLOYMENT),
        "deployment": DEPLOYMENT,
        "deployment_routes": listing(ROUTE),
        "deployment_history": {"items": DECISIONS, "next_cursor": None},
        "deployment_requests": {"minutes": []},
        "fleet": FLEET,
        "pools": {"items": [POOL], "next_cursor": None},
        "pool": POOL,
        "pool_history": listing(CHANGE),
        "fleet_slices": listing(SLICE),
        "fleet_slice": SLICE,
        "dead_letters": {"total": 1, "items": [DEAD_LETTER], "next_cursor": None},
        "last_hour": {"minutes": [], "held": []},
        "overview": {
            "tasks": {"running": 1, "pending": 1},
            "jobs": {"pending": 1},
            "workers": {"degraded": 1},
            "pending": 1,
            "capacity": WORKER["total"],
            "committed": WORKER["committed"],
            "slices": {},
            "users": ["ada"],
        },
    }


async def fill(iris: House, token: str = "") -> None:
    """One job whose first task has failed once on a lost worker, and one of everything."""
    if "/a" not in iris.state.jobs:
        job = {
            "name": "/a",
            "command": ["true"],
            "replicas": 2,
            "user": "ada",
            "env": {"X": "<script>"},
        }
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        await iris.http.post("/v1/jobs", json=job, headers=headers)
    state = iris.state
    first, second = state.tasks["/a/0"], state.tasks["/a/1"]
    first.state, first.attempts = "running", [attempt_of(0, "worker_failed"), attempt_of(1)]
    first.attempts[0].error = "<b>lost</b>"
    second.pending_reason = Reason(
        ReasonCode.NOT_ENOUGH_CPU, "asks for 8 cores, the best host has 4 free"
    )
    await state.print(1, 0, "<i>hello</i>\n", attempt=1)
    await state.tell_task("/a/0", "running")
    state.pages = pages_of(state)
    state.scripted["DeployCommand"] = Answer("accepted", to_json(DEPLOYMENT))
    state.scripted["tree"] = Answer("ok", to_json({"job": state.jobs["/a"], "children": []}))
    state.scripted["task_states"] = Answer("ok", to_json({"runs": [["running", 1]]}))
