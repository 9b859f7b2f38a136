"""On a narrow terminal each table leaves columns out in its own order and wraps its sentences;
texts are whole.
"""

import click
import pytest

from iris.cli.commands.look import events, queue, top
from iris.cli.commands.operate import audit, context, quota, session, usage
from iris.cli.commands.operate.admin import token
from iris.cli.commands.serve import deployment_tables
from iris.cli.output.tables import table_lines
from tests.support import pages

QUEUED = {
    "position": 1,
    "job": "/train",
    "tasks": 8,
    "band": "interactive",
    "depth": 0,
    "root_submitted_at": None,
    "submitted_at": None,
    "sequence": 41,
    "user": "mia",
    "pending_reason": {"message": "asks for 8 cores, the best host has 4 free"},
}
SESSION = {
    "id": "j7-0",
    "job": "/train",
    "status": "PENDING",
    "since": None,
    "kernels": [],
    "tries": {"PrepareSessions": 2, "CreateSessions": 1},
}
KERNEL = {"task": "/train/0", "attempt": 2, "worker": "gpu-0", "status": "RUNNING"}
DEPLOYMENT = {
    "id": "d1",
    "name": "chat",
    "status": "degraded",
    "ready": 1,
    "replicas": 2,
    "revision": 3,
    "user": "mia",
    "since": None,
    "version": 9,
    "conditions": [{"code": "update_paused"}, {"code": "not_enough_routes"}],
}
ROUTE = {
    "id": "r3-1",
    "status": "degraded",
    "revision": 3,
    "worker": "gpu-0",
    "address": "10.0.0.7:31002",
    "discovered": False,
    "since": None,
    "job": "/chat-r3-1",
    "detail": "its readiness check has failed for two minutes",
}
CHANGE = {
    "at": None,
    "by": {"name": "mia"},
    "action": "set_quota",
    "kind": "user",
    "name": "ann",
    "owner": "ann",
    "detail": "at most 8 running tasks and 64 GiB of memory",
    "id": "a1",
}
QUOTA = {
    "user": "ann",
    "max_running_cpu": 8000,
    "running_cpu": 1500,
    "max_pending_tasks": 3,
    "pending_tasks": 1,
    "max_band": "batch",
}
USED = {**pages.USAGE, "cost": 2.5}
TOKEN = {
    "name": "laptop",
    "user": "ann",
    "role": "admin",
    "made_ms": 0,
    "expires_ms": 0,
    "expired": True,
}
CONTEXT = {"name": "work", "url": "https://iris.example.org", "token": True, "current": True}
USAGE = {"index": 7, "worker": "gpu-0", "started_at": None, "cpu_ms": 4000, "rss_bytes": 1 << 20}
EVENT = {
    "type": "task.state.failed",
    "at_ms": 1767351845000,
    "task": "/train/0",
    "state": "failed",
    "attempt": 2,
    "worker": "gpu-0",
    "cause": "exited",
    "exit_code": 1,
    "by": "mia",
    "task_id": "j7-0",
}
TABLES = {
    "queue": (queue.COLUMNS, QUEUED, ["SEQ", "DEPTH", "ROOT AGE", "USER", "BAND", "AGE"]),
    "session": (session.COLUMNS, SESSION, ["KERNELS", "SINCE"]),
    "kernels": (session.KERNELS, KERNEL, ["ATTEMPT"]),
    "deploy": (deployment_tables.DEPLOYMENTS, DEPLOYMENT, ["USER", "SINCE", "REVISION"]),
    "routes": (deployment_tables.ROUTES, ROUTE, ["SINCE", "REVISION", "ADDRESS"]),
    "audit": (audit.COLUMNS, CHANGE, ["OWNER", "AT"]),
    "usage": (usage.columns("user", priced=True), USED, ["PEAK", "ATTEMPTS", "USED", "GIB HOURS"]),
    "quota": (
        quota.COLUMNS,
        QUOTA,
        [
            "BEST BAND",
            "STORED TODAY",
            "LIVE BYTES",
            "PENDING TASKS",
            "RUNNING ACCELERATORS",
            "RUNNING MEMORY",
            "RUNNING CPU",
        ],
    ),
    "token": (token.COLUMNS, TOKEN, ["MADE", "ROLE"]),
    "context": (context.COLUMNS, CONTEXT, ["TOKEN"]),
    "top": (top.USED, USAGE, ["WRITTEN", "READ", "PEAK", "CPU"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_columns_of_each_table_give_way_in_this_order(name):
    columns, row, order = TABLES[name]
    shown = [column for column in columns if not column.wide]
    left = [column.title for column in shown]
    gone = []
    for width in range(200, 0, -1):
        heading = table_lines([row], shown, width)[0]
        gone += [title for title in left if f"  {title}  " not in f"  {heading}  "]
        left = [title for title in left if title not in gone]
    assert gone == order


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        (
            "queue",
            60,
            [
                "POS  JOB     TASKS  AGE  WHY",
                "  1  /train      8       asks for 8 cores, the best host has",
                "                         4 free",
            ],
        ),
        (
            "session",
            50,
            [
                "ID    JOB     STATUS   TRIES",
                "j7-0  /train  pending  PrepareSessions 2,",
                "                       CreateSessions 1",
            ],
        ),
        (
            "deploy",
            60,
            [
                "NAME  STATUS    READY  REVISION  CONDITIONS",
                "chat  degraded    1/2         3  update_paused,",
                "                                 not_enough_routes",
            ],
        ),
        (
            "routes",
            72,
            [
                "ROUTE  STATUS    WORKER  SERVES  WHY",
                "r3-1   degraded  gpu-0   no      its readiness check has failed for two",
                "                                 minutes",
            ],
        ),
        (
            "audit",
            50,
            [
                "WHO  DID        TO        DETAIL",
                "mia  set quota  user ann  at most 8 running tasks",
                "                          and 64 GiB of memory",
            ],
        ),
        (
            "quota",
            50,
            [
                "USER  RUNNING CPU   RUNNING MEMORY",
                "ann      1.5 of 8  0B of unlimited",
            ],
        ),
    ],
)
def test_what_a_narrow_terminal_shows(name, width, lines):
    columns, row, _ = TABLES[name]
    shown = table_lines([row], [column for column in columns if not column.wide], width)
    assert [click.unstyle(line) for line in shown] == lines


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            0,
            [
                "2026-01-02 11:04:05  task.state.failed  /train/0  failed  attempt=2  worker=gpu-0  cause=exited"
                "  exit_code=1  by=mia  id=j7-0"
            ],
        ),
        (
            80,
            [
                "2026-01-02 11:04:05  task.state.failed  /train/0  attempt=2  worker=gpu-0",
                "                                                  cause=exited  exit_code=1",
                "                                                  by=mia",
            ],
        ),
        (
            60,
            [
                "task.state.failed  /train/0  attempt=2  worker=gpu-0",
                "                             cause=exited  exit_code=1",
                "                             by=mia",
            ],
        ),
    ],
)
def test_an_event_fits_the_terminal(width, lines, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    assert [click.unstyle(line) for line in events.lines_of(EVENT, width)] == lines
