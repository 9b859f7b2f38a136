"""Every subject and every stream, as one table; the bus declares its streams from here.

Subjects are built only by the functions below, so names are always escaped.
Source: docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from iris_core.names import to_token


class MessagePattern(StrEnum):
    """How a message is sent: stored in a stream, published to subscribers, or as a request."""

    STREAM = "stream"
    CORE = "core"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Stream:
    """One JetStream stream.

    Attributes:
        subjects: what it captures.
        fsync: messages are acknowledged only once on disk (False: the content can be rebuilt from
            the journal).
        discard_new: a full stream refuses new messages instead of deleting old ones.
        max_age_s, max_bytes: limits; 0 is none.
        kept_as: the subject its messages are kept under, as a NATS subject mapping; empty: as
            published.
    """

    name: str
    subjects: tuple[str, ...]
    why: str
    fsync: bool = True
    discard_new: bool = True
    max_age_s: int = 0
    max_bytes: int = 0
    kept_as: str = ""


GIB = 1 << 30
DAY_S = 86_400

JOURNAL = Stream(
    "IRIS_JOURNAL", ("iris.journal",), "the record: commits, in parts when they are large"
)
_EVENTS = {
    "task.state.*": "TaskEvent",
    "job.state.*": "JobEvent",
    "session.state.*": "SessionEvent",
    "deployment.state.*": "DeploymentEvent",
    "route.state.*": "RouteEvent",
    "queue.state.*": "HoldEvent",
    "fleet.slice.*": "SliceEvent",
    "fleet.pool.*": "PoolEvent",
    "fleet.orphan.*": "PoolEvent",
    "project.state.*": "ProjectEvent",
    "task.notice.*": "NoticeEvent",
    "job.spec.*": "AmendmentEvent",
}
EVENTS = Stream(
    "IRIS_EVENTS",
    tuple(_EVENTS),
    "the public facts; can be rebuilt from the journal",
    fsync=False,
    discard_new=False,
    max_age_s=3 * DAY_S,
    max_bytes=8 * GIB,
)
LOGS = Stream(
    "IRIS_LOGS",
    ("iris.log.*.*.*",),
    "what tasks print; outlives attempt and worker",
    discard_new=False,
    max_age_s=7 * DAY_S,
    max_bytes=8 * GIB,
    kept_as="iris.log.{{wildcard(2)}}.{{wildcard(3)}}",
)
ARTIFACTS = Stream(
    "IRIS_ARTIFACTS",
    ("iris.artifact.*.*.*",),
    "the output directories of attempts, in parts; outlives attempt and worker",
    discard_new=False,
    max_age_s=7 * DAY_S,
    max_bytes=16 * GIB,
)
RESULTS = Stream(
    "IRIS_RESULTS",
    ("iris.result.*.*",),
    "what the calls of maps return; outlives attempt and worker",
    discard_new=False,
    max_age_s=7 * DAY_S,
    max_bytes=8 * GIB,
)
STREAMS = (JOURNAL, EVENTS, LOGS, ARTIFACTS, RESULTS)
PART = "Iris-Part"
"""The header of a part of an artifact: its number, from 0."""

RECORDS_LOST = "iris-records-lost"
"""The metadata of the journal's stream that says why no state service may lead on it; empty or
absent: it may.
"""

LAST_BACKUP = "iris-last-backup-ms"
"""The metadata of the journal's stream that says when the newest backup was made (Unix, ms): by
`iris admin backup`, or of the backup that was restored.
"""

TASKS_TOGETHER = 16
"""How many tasks of a job share one subject of output; see `log`."""
SHARED_OUTPUT_BYTES = 64 << 10
"""Of each attempt, on that subject; what it prints beyond is on one of its task. See ADR 18."""

SNAPSHOTS_BUCKET = "iris-snapshots"
BUNDLES_BUCKET = "iris-bundles"
DISCOVERY_BUCKET = "iris-discovery"
"""The key-value bucket that holds `Discovery` as JSON under each deployment's name."""
NOTIFY_BUCKET = "iris-notify"
"""The key-value bucket of the notifier's records: targets, subscriptions, messages."""
NOTIFY_TARGETS = "target"
"""How the key of each target begins there."""
NOTIFY_WRITER = "writer"
"""The key of the notifier that works: whoever finds another revision of it than expected reads all
records again.
"""
NOTIFY_POSITION = "position"
"""The key of the place in the stream of events up to which the notifier has read."""
KEYS_BUCKET = "iris-keys"
"""The key-value bucket of the keys that sign tokens of attempts; only the state service and
gateways read it.
"""
STORED_MESSAGE_BYTES = 64
"""What a stream adds to each message: its subject, a checksum, lengths."""
STORES = (
    *(stream.name for stream in STREAMS),
    f"OBJ_{SNAPSHOTS_BUCKET}",
    f"OBJ_{BUNDLES_BUCKET}",
    f"KV_{DISCOVERY_BUCKET}",
    f"KV_{KEYS_BUCKET}",
    f"KV_{NOTIFY_BUCKET}",
)
"""Every stream on the server by its name there: the streams above, and those of the buckets."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of docs/subjects.md."""

    pattern: str
    kept: MessagePattern
    writer: str
    reader: str
    message: str


JOURNAL_SUBJECT = "iris.journal"
_COMMAND = "iris.state.command."
CMD_SUBMIT = f"{_COMMAND}submit"
CMD_CANCEL = f"{_COMMAND}cancel"
CMD_ADMIN = f"{_COMMAND}admin"
CMD_RERUN = f"{_COMMAND}rerun"
CMD_AMEND = f"{_COMMAND}amend"
CMD_REQUEUE = f"{_COMMAND}requeue"
CMD_GROW = f"{_COMMAND}grow"
CMD_QUEUE = f"{_COMMAND}queue"
CMD_DEPLOY = f"{_COMMAND}deploy"
CMD_FLEET = f"{_COMMAND}fleet"
CMD_PROJECT = f"{_COMMAND}project"
STATE_COMMAND = f"{_COMMAND}*"
STATE_PING = "iris.state.ping"
STATE_PLAN = "iris.state.plan"
STATE_QUERY = "iris.state.query"
STATE_READ = "iris.state.read"
STATE_REASONS = "iris.state.reasons"
_WORKER = "iris.worker."
REPORTS = f"{_WORKER}*.report"
HEARTBEATS = f"{_WORKER}*.heartbeat"
LOADS = "iris.proxy.load"
FLEET_ORDERS = "iris.provisioner.order"
FLEET_REPORTS = "iris.provisioner.report"
DESCRIBE = "iris.service.describe"
SNAPSHOT = "iris.snapshot"
SNAPSHOT_FULL = "iris.snapshot.full"
SCHEDULER_PLAN = "iris.scheduler.plan"
NOTIFIER_REQUEST = "iris.notifier.request"
JOB_EVENTS = "job.state.*"
INBOXES = ("_INBOX.", "_R_.")
_LINE_BYTES = 4000
"""Of both subjects of a message. A line of the protocol has at most 4 KiB, with its verb and
sizes.
"""
"""Where answers go: of who asks, and where the server itself passes them on to another account."""

SUBJECTS = (
    Subject(CMD_SUBMIT, MessagePattern.REQUEST, "gateway", "state (leader)", message="SubmitJob"),
    Subject(CMD_CANCEL, MessagePattern.REQUEST, "gateway", "state (leader)", message="CancelJob"),
    Subject(CMD_ADMIN, MessagePattern.REQUEST, "gateway", "state (leader)", message="AdminCommand"),
    Subject(CMD_RERUN, MessagePattern.REQUEST, "gateway", "state (leader)", message="RerunJob"),
    Subject(CMD_AMEND, MessagePattern.REQUEST, "gateway", "state (leader)", message="AmendJob"),
    Subject(
        CMD_REQUEUE, MessagePattern.REQUEST, "gateway", "state (leader)", message="RequeueTasks"
    ),
    Subject(CMD_GROW, MessagePattern.REQUEST, "gateway", "state (leader)", message="GrowJob"),
    Subject(CMD_QUEUE, MessagePattern.REQUEST, "gateway", "state (leader)", message="HoldQueue"),
    Subject(
        CMD_DEPLOY, MessagePattern.REQUEST, "gateway", "state (leader)", message="DeployCommand"
    ),
    Subject(CMD_FLEET, MessagePattern.REQUEST, "gateway", "state (leader)", message="FleetCommand"),
    Subject(
        CMD_PROJECT, MessagePattern.REQUEST, "gateway", "state (leader)", message="ProjectCommand"
    ),
    Subject(
        JOURNAL_SUBJECT,
        MessagePattern.STREAM,
        "state (leader)",
        "state (standby)",
        message="Commit",
    ),
    *(
        Subject(one, MessagePattern.STREAM, "state (leader)", "anyone", message=message)
        for one, message in _EVENTS.items()
    ),
    Subject("iris.log.*.*.*", MessagePattern.STREAM, "worker", "gateway", message="TaskOutput"),
    Subject(
        "iris.artifact.*.*.*", MessagePattern.STREAM, "worker", "gateway", message="bytes of tar.gz"
    ),
    Subject("iris.result.*.*", MessagePattern.STREAM, "worker", "gateway", message="CallResults"),
    Subject(
        STATE_PING,
        MessagePattern.REQUEST,
        "state (standby), gateway, scheduler",
        "state (leader)",
        message="Ping",
    ),
    Subject(STATE_PLAN, MessagePattern.REQUEST, "scheduler", "state (leader)", message="Plan"),
    Subject(
        STATE_QUERY, MessagePattern.REQUEST, "gateway, notifier", "state (leader)", message="Query"
    ),
    Subject(STATE_READ, MessagePattern.REQUEST, "gateway", "state (standby)", message="Query"),
    Subject(
        STATE_REASONS, MessagePattern.CORE, "state (leader)", "state (standby)", message="Reasons"
    ),
    Subject(REPORTS, MessagePattern.REQUEST, "worker", "state (leader)", message="WorkerReport"),
    Subject(HEARTBEATS, MessagePattern.CORE, "worker", "state", message="HeartbeatMessage"),
    Subject(LOADS, MessagePattern.CORE, "proxy, state (leader)", "state", message="LoadReport"),
    Subject(
        FLEET_REPORTS,
        MessagePattern.CORE,
        "provisioner",
        "state (leader)",
        message="ProvisionerReport",
    ),
    Subject(
        FLEET_ORDERS, MessagePattern.CORE, "state (leader)", "provisioner", message="FleetOrders"
    ),
    Subject(
        "iris.worker.*.order", MessagePattern.REQUEST, "state (leader)", "worker", message="Order"
    ),
    Subject(
        "iris.worker.*.execution",
        MessagePattern.REQUEST,
        "gateway",
        "worker",
        message="ExecutionRequest",
    ),
    Subject(SNAPSHOT, MessagePattern.CORE, "state (leader)", "scheduler", message="Delta"),
    Subject(
        SNAPSHOT_FULL, MessagePattern.REQUEST, "scheduler", "state (leader)", message="FullSnapshot"
    ),
    Subject(SCHEDULER_PLAN, MessagePattern.REQUEST, "gateway", "scheduler", message="PlanRequest"),
    Subject(
        NOTIFIER_REQUEST,
        MessagePattern.REQUEST,
        "gateway, notifier",
        "notifier",
        message="NotifyRequest",
    ),
    Subject(
        DESCRIBE,
        MessagePattern.REQUEST,
        "gateway",
        "state, scheduler, gateway, proxy, provisioner, notifier",
        message="ServiceInfo",
    ),
)


def is_command(subject: str) -> bool:
    """Whether it is the subject of a command, including commands of later releases."""
    return subject.startswith(_COMMAND)


def is_plain(text: str) -> bool:
    """Whether it can be part of a line of the NATS protocol; a foreign reply subject may not."""
    return text.isascii() and text.isprintable() and " " not in text


def fits_line(subject: str, reply: str = "") -> bool:
    """Whether a message can be sent there: a server ends a connection that sends a longer line."""
    return 0 < len(subject) <= _LINE_BYTES - len(reply) and is_plain(subject) and is_plain(reply)


def report(worker: str) -> str:
    return f"{_WORKER}{to_token(worker)}.report"


def is_inbox(text: str) -> bool:
    """Whether an answer may be sent there; a malicious requester could name a subject on which it
    does harm.
    """
    return text.startswith(INBOXES) and is_plain(text)


def heartbeat(worker: str) -> str:
    return f"{_WORKER}{to_token(worker)}.heartbeat"


def order(worker: str) -> str:
    return f"{_WORKER}{to_token(worker)}.order"


def execution(worker: str) -> str:
    return f"{_WORKER}{to_token(worker)}.execution"


def is_report(subject: str) -> bool:
    """Whether a request to the leader is a worker's report; orders are not sent to it."""
    return subject.startswith(_WORKER)


def is_from(subject: str, worker: str) -> bool:
    """Whether a report or heartbeat arrived on the subject of the worker that it names.

    A worker's credentials allow it to publish under its own token only, so this check prevents
    reports for another worker.
    """
    token = subject.split(".", 3)[2]
    if "=" not in token:
        return token == worker
    return len(worker) < len(token) and token == to_token(worker)


def output(worker: str, job: int, index: int, printed: int = 0) -> str:
    """Where a worker publishes output of a task; the stream drops the worker's token and keeps it
    under `log`, or `own_log` when the attempt has ``printed`` many bytes by the end of the message.
    """
    kept = log(job, index) if printed <= SHARED_OUTPUT_BYTES else own_log(job, index)
    return kept.replace("iris.log.", f"iris.log.{to_token(worker)}.", 1)


def artifact(worker: str, job: int, upload: str) -> str:
    """Where a worker stores one upload of an output directory: a worker can write under its own
    token only.
    """
    return f"iris.artifact.{to_token(worker)}.{job}.{upload}"


def job_artifacts(job: int) -> str:
    """The subjects of all artifacts of a job."""
    return f"iris.artifact.*.{job}.*"


def results(worker: str, job: int) -> str:
    """Where a worker stores results of a job's calls."""
    return f"iris.result.{to_token(worker)}.{job}"


def sender(subject: str) -> str:
    """The token of the worker that stored results there: it can on its own subjects only, but for
    any job.
    """
    return subject.split(".")[2]


def job_results(job: int) -> str:
    """The subjects of all results of a job."""
    return f"iris.result.*.{job}"


def restored_output(subject: str) -> str:
    """The subject to which output must be published to be stored under ``subject`` again."""
    return subject.replace("iris.log.", "iris.log.restored.", 1)


def log(job: int, index: int) -> str:
    """The subject under which the output of a task is stored, shared by 16 tasks of its job.

    The server needs memory for each subject of a stream, and reads and deletes the messages of one
    subject without scanning others. The message names its task. Source: ADR 18.
    """
    return f"iris.log.j{job}.s{index // TASKS_TOGETHER}"


def own_log(job: int, index: int) -> str:
    """The subject of a task alone, for output beyond `SHARED_OUTPUT_BYTES` of each attempt: so who
    reads its neighbours reads little of it. Source: ADR 18.
    """
    return f"iris.log.j{job}.{index}"


def task_logs(job: int, index: int) -> tuple[str, str]:
    """The subjects that hold the output of a task; the first holds output of others too."""
    return log(job, index), own_log(job, index)


def job_logs(job: int) -> str:
    """The subjects that hold the output of a job's tasks, and nothing else."""
    return f"iris.log.j{job}.*"


@cache
def event(entity: str, word: str, about: str = "state") -> str:
    """The subject of an event, e.g. of ``task.state.running`` or ``task.notice.drain``: exactly
    three tokens.
    """
    return f"{entity}.{about}.{word}"
