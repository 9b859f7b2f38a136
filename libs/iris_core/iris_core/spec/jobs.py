"""The specification of a job: the body of ``POST /v1/jobs``.

Types only; `admission` validates the values in the gateway and again in the state service. The
decoder refuses unknown fields. Source: docs/design/semantics.md#jobs,
    docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from iris_core.spec.calls import DIGEST, Calls
from iris_core.spec.exit_rules import MAX_RULES, SIGNAL_PATTERN, ExitRule, signal_number
from iris_core.spec.field_rules import (
    at_most,
    between,
    duration,
    filled,
    seconds,
    text,
    without_nul,
)
from iris_core.spec.index_set import MAX_INDEXES, IndexSet, indexes_of
from iris_core.spec.notify import MAX_NOTIFY, NotifyRule
from iris_core.spec.projects import ROOT, ProjectPath
from iris_core.spec.resources import ResourceRequest
from iris_core.states import ConstraintOp, PriorityBand

BandName = Literal["production", "interactive", "batch"]
BANDS: tuple[BandName, ...] = get_args(BandName)
SuccessPolicy = Literal["all", "leader"]
LevelMode = Literal["required", "preferred"]
When = Literal["ok", "any", "notok", "start"]
OnTimeout = Literal["kill", "requeue"]
Spread = Literal["hosts", "none"]
"""Over what tasks that can replace each other are placed; none: as few hosts as possible."""
TASKS = "tasks"
"""The spread key of a job whose own tasks are spread; that of a deployment's routes is its path,
``/chat``.
"""
PackageList = Literal["", "uv.lock", "requirements.txt"]
PACKAGE_FILES: dict[PackageList, tuple[str, ...]] = {
    "uv.lock": ("uv.lock", "pyproject.toml"),
    "requirements.txt": ("requirements.txt",),
    "": (),
}
"""The files that a list of packages consists of, best list first."""

MAX_REPLICAS = MAX_INDEXES
MAX_RETRIES = 10_000
MAX_PORTS = 32
MAX_LABELS = 64
MAX_AFTER = 32
MAX_PRELOAD = 64
MAX_CONSTRAINTS = 64
MAX_VALUES = 1000
MAX_TEXT = 256
MAX_GRACE_S = 3600
"""A cancelled or preempted task holds its resources for so long at most."""
MAX_PROTECT_S = 7 * 86_400
"""Lower bands keep higher ones waiting for so long at most."""
MAX_ENV_BYTES = 256 * 1024
MAX_COMMAND_BYTES = 128 * 1024
DEFAULT_PREEMPTION_RETRIES = 100
DEFAULT_REQUEUES = 100
DEFAULT_MAX_BACKOFF_S = 300.0
DEFAULT_NOTICE_S = 60.0

_PART = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_IMAGE = (
    r"(?=[A-Za-z0-9].{0,511}$)([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._/-]+"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_JOB_NAME = f"^/?(?![0-9]+(/|$)){_PART}(/(?![0-9]+$){_PART}){{0,15}}$"
JobNameText = Annotated[str, Meta(extra_json_schema={"pattern": _JOB_NAME}, examples=["/train"])]
_FIRST_WORD = {"type": "string", "pattern": r"^[^\x00]+$"}
CommandWords = Annotated[
    tuple[Annotated[str, without_nul("a word holds a NUL byte")], ...],
    Meta(
        extra_json_schema={"minItems": 1, "prefixItems": [_FIRST_WORD]},
        examples=[["python", "train.py"]],
    ),
]
EnvVariables = Annotated[
    dict[str, Annotated[str, without_nul("the value holds a NUL byte")]],
    text(
        "[A-Za-z_][A-Za-z0-9_.-]*",
        "bad_env_key",
        "is not a valid variable name",
        hint="letters, digits and _ . -, not starting with a digit",
        of_keys=True,
    ),
]
TaskLabels = Annotated[
    dict[
        str,
        Annotated[
            str,
            at_most(MAX_TEXT, f"a label's value has at most {MAX_TEXT} characters", of="Length"),
        ],
    ],
    at_most(MAX_LABELS, f"at most {MAX_LABELS} labels", of="Properties"),
    text(
        "[A-Za-z0-9][A-Za-z0-9._/-]{0,127}",
        "bad_label",
        "is not a label key",
        hint="1 to 128 letters, digits and . _ / -, starting with a letter or digit",
        of_keys=True,
    ),
]
PortNames = Annotated[
    tuple[
        Annotated[
            str,
            text(
                "[A-Za-z][A-Za-z0-9_-]{0,31}",
                "bad_port",
                "is not a port name",
                hint="1 to 32 letters, digits, _ and -, starting with a letter",
            ),
        ],
        ...,
    ],
    at_most(MAX_PORTS, f"at most {MAX_PORTS} ports"),
]
Attribute = (
    Annotated[str, at_most(MAX_TEXT, f"a value has at most {MAX_TEXT} characters", of="Length")]
    | int
    | float
)
_INDEXES = " *[0-9]{1,4}(-[0-9]{1,4}(:[1-9][0-9]{0,3})?)? *"
BundleDigest = Annotated[str, text("[0-9a-f]{64}", "bad_digest", "is not a bundle digest", DIGEST)]
OwnerText = Annotated[
    str,
    text(
        r"[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,127}",
        "bad_user",
        "is not a valid user name",
        hint="1 to 128 printable characters",
        optional=True,
    ),
]
SignalName = Annotated[
    str,
    Meta(extra_json_schema={"pattern": f"^(?!(SIG)?(KILL|STOP|CONT)$)(SIG)?{SIGNAL_PATTERN[3:]}$"}),
]
IndexText = Annotated[str, Meta(extra_json_schema={"pattern": f"^({_INDEXES}(,{_INDEXES})*)?$"})]
AttributeKey = Annotated[str, Meta(extra_json_schema={"pattern": "^[a-z0-9][a-z0-9._:/-]{0,127}$"})]
"""Checked by `constraints.key_mistakes`, which tells a key that is not in lower case."""
RetryCount = Annotated[int, between(0, MAX_RETRIES)]
ParallelTasks = Annotated[int, between(1, MAX_REPLICAS)]
Seconds = Annotated[float, duration()]


class Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One condition on a worker's attributes; ``value`` for one operand, ``values`` for ``in``."""

    key: AttributeKey
    op: ConstraintOp = ConstraintOp.EQ
    value: Attribute | None = None
    values: Annotated[
        tuple[Attribute, ...], at_most(MAX_VALUES, f"at most {MAX_VALUES} values")
    ] = ()
    mode: Literal["required", "preferred"] = "required"


Constraints = Annotated[
    tuple[Constraint, ...],
    at_most(MAX_CONSTRAINTS, f"a job has at most {MAX_CONSTRAINTS} constraints"),
]


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One level of the topology that a gang is placed by; workers with one value of its attribute
    are a domain.

    Attributes:
        key: of the attribute, for example ``rack``.
        mode: all tasks are in one domain (required), or in as few domains as possible (preferred).
    """

    key: AttributeKey
    mode: LevelMode = "required"

    @property
    def words(self) -> str:
        """``rack``, or ``rack:preferred``."""
        return self.key if self.mode == "required" else f"{self.key}:{self.mode}"


class Coscheduling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All tasks of the job are placed together, one per worker, by the workers' attributes.

    Attributes:
        group_by: an attribute that the workers share, or levels of the topology, innermost first.
        success: the job succeeds when every task has exited 0 (all), or as soon as task 0 has
            (leader).
        slices: the tasks are in so many parts of equal size, by index. The workers of each part
            share a value of ``group_by``, or of its innermost level, each part another value; the
            other levels hold for all parts.
        within: an attribute of which all parts share a value, for example ``zone``; empty: they may
            be anywhere.
    """

    group_by: AttributeKey | Annotated[tuple[Level, ...], Meta(extra_json_schema={"minItems": 1})]
    success: SuccessPolicy = "all"
    slices: Annotated[int, Meta(extra_json_schema={"minimum": 1})] = 1
    within: Annotated[
        str, Meta(extra_json_schema={"pattern": "^([a-z0-9][a-z0-9._:/-]{0,127})?$"})
    ] = ""

    @property
    def levels(self) -> tuple[Level, ...]:
        """Innermost first, without ``within``."""
        return (Level(self.group_by),) if isinstance(self.group_by, str) else self.group_by

    @property
    def key(self) -> str:
        """Of the innermost level."""
        return self.levels[0].key if self.levels else ""

    @property
    def words(self) -> str | list[str]:
        """``group_by`` as people write it."""
        return (
            self.group_by
            if isinstance(self.group_by, str)
            else [level.words for level in self.group_by]
        )

    @property
    def several(self) -> tuple[Level, ...]:
        """The levels; none when the innermost one, required, is all."""
        return () if self.levels == (Level(self.key),) else self.levels


class Dependency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The job waits for another one.

    Attributes:
        job: its name or id, resolved once, when this job is admitted.
        when: what it waits for: that the other job has succeeded (ok), ended (any), ended in
            another way (notok), or first runs (start).
        each: each task waits for the task in its place of the other job, which has as many.
    """

    job: Annotated[str, filled("it names no job")]
    when: When = "ok"
    each: bool = False


class StopPolicy(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """How a task is stopped: after a cancellation, its time limit or a preemption alike.

    Attributes:
        signal: sent first to its process group. grace_s: KILL follows so much later; None: the
            cluster's.
    """

    signal: SignalName = "SIGTERM"
    grace_s: Annotated[float, duration(MAX_GRACE_S, "for example 60")] | None = None


class NoticePolicy(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """What a task is told before it is stopped, so that it can write a checkpoint.

    Attributes:
        signal: sent to its process group. before_s: so long before its time limit. For other
            reasons it is sent as soon as they are known, in place of the stop signal where the task
            is stopped.
    """

    signal: SignalName = "SIGUSR1"
    before_s: Annotated[float, duration(math.inf, "for example 60")] = DEFAULT_NOTICE_S


class Probe(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """How a worker probes the health of a route. Times in seconds.

    Attributes:
        kind: an HTTP GET of ``path``, a TCP connect, or ``command`` run as the task with exit code
            0.
        port: the name of the port, one of the job's ``ports``; probed at the host's advertised
            address.
        path: for http. expect: HTTP statuses that pass; empty: 200 to 399.
        ready_path: a second path for http; while it fails, the route gets no requests but is not
            replaced.
        initial_delay_s: from the start of the process to the first probe.
        interval_s: between probes; before the first pass, at most 1. timeout_s: for one probe.
        failures, passes: how many consecutive ones make a route unhealthy, or healthy again.
        start_timeout_s: from the start of the process to the first pass; failures before that do
            not count.
        grace_s: how long a route may be unhealthy before it is replaced.
    """

    kind: Literal["http", "tcp", "command"] = "http"
    port: str = "http"
    path: str = "/healthz"
    expect: tuple[Annotated[int, between(100, 599)], ...] = ()
    ready_path: str = ""
    command: tuple[str, ...] = ()
    initial_delay_s: Annotated[float, seconds(0)] = 0.0
    interval_s: Annotated[float, seconds(0.1)] = 10.0
    timeout_s: Annotated[float, seconds(0.1)] = 5.0
    failures: Annotated[int, between(1, 1000)] = 3
    passes: Annotated[int, between(1, 1000)] = 1
    start_timeout_s: Annotated[float, seconds(1)] = 600.0
    grace_s: Annotated[float, seconds(0)] = 60.0


class Environment(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """What the job's tasks run in: a virtual environment, or a container of an image. Each host
    builds the one and pulls the other once, and uses it again.

    Attributes:
        packages: the file of the bundle that lists the packages to install; empty: none.
        setup: a shell command run in a copy of the bundle, in the environment.
        python: the version of Python, for example 3.12; empty: the host's ``python3``.
        image: the image of a container, for example ``ghcr.io/lab/train:1``, which brings its own
            packages; only hosts with a container runtime take it. Empty: tasks run without a
            container.
    """

    packages: PackageList = ""
    setup: Annotated[str, without_nul("the command holds a NUL byte")] = ""
    python: Annotated[
        str,
        text(
            r"3\.[0-9]{1,2}(\.[0-9]{1,2})?",
            "bad_version",
            "is not a Python version",
            "3.12",
            optional=True,
        ),
    ] = ""
    image: Annotated[
        str,
        text(
            _IMAGE, "bad_image", "is not an image reference", "ghcr.io/lab/train:1", optional=True
        ),
    ] = ""


NEEDS_RUNTIME = Constraint("container-runtime", ConstraintOp.EXISTS)
"""What follows from an image. The worker's attribute is the name of its runtime."""


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job's specification. Times in seconds; None: no limit."""

    name: JobNameText
    command: CommandWords
    env: EnvVariables = {}
    replicas: Annotated[int, between(1, MAX_REPLICAS)] = 1
    resources: ResourceRequest = ResourceRequest()
    constraints: Constraints = ()
    coscheduling: Coscheduling | None = None
    band: BandName = "interactive"
    max_retries_failure: RetryCount = 0
    max_retries_preemption: RetryCount = DEFAULT_PREEMPTION_RETRIES
    max_task_failures: Annotated[int, between(0, MAX_REPLICAS)] = 0
    scheduling_timeout_s: Seconds | None = None
    timeout_s: Seconds | None = None
    bundle: BundleDigest | None = None
    ports: PortNames = ()
    labels: TaskLabels = {}
    user: OwnerText = ""
    probe: Probe | None = None
    """Set for a route's job only; a submitted job may not have one."""
    environment: Environment | None = None
    """None: tasks run with what their host has."""
    output: str = ""
    """A directory below each task's own that is kept when an attempt has ended; empty: nothing is
    kept.
    """
    indexes: IndexText = ""
    """The tasks of 0 to ``replicas`` - 1 that the job has, for example ``1,3,5`` or ``0-15:4,20``;
    empty: all.
    """
    spread: Spread = "hosts"
    array: IndexText = ""
    """A value for each task, ascending, for example ``0-15:4,20``: `array_index`; empty: none."""
    each_line: str = ""
    """A file of the bundle with a line for each task: task i finds its line i in
    ``IRIS_ARRAY_VALUE``; empty: none.
    """
    max_parallel: ParallelTasks | None = None
    """How many of its tasks may have an open attempt at a time."""
    after: Annotated[
        tuple[Dependency, ...],
        at_most(
            MAX_AFTER,
            f"a job waits for at most {MAX_AFTER} others",
            "wait for one job that waits for them",
        ),
    ] = ()
    not_before: str = ""
    """Tasks are not placed earlier: a moment (RFC 3339), or a duration after the submission; empty:
    at any time.
    """
    singleton: Annotated[
        str,
        text(
            "[!-~]{1,128}",
            "bad_key",
            "is not a singleton key",
            hint="1 to 128 printable characters without spaces",
            optional=True,
        ),
    ] = ""
    """At most one job of a user with this key runs at a time, in the order of submission; empty: no
    such limit.
    """
    hold: bool = False
    """Pending tasks are not placed until the job is released."""
    on_exit: Annotated[tuple[ExitRule, ...], at_most(MAX_RULES, f"at most {MAX_RULES} rules")] = ()
    """What is done when a task exits with other codes than 0; the first rule that matches
    counts.
    """
    max_requeues: RetryCount = DEFAULT_REQUEUES
    """How often a task may return to the queue because it asked for it."""
    backoff_s: Annotated[float, duration(hint="leave it out to retry at once")] | None = None
    """The pause before a task is tried again after a failure or a requeue, doubled each time."""
    max_backoff_s: Seconds = DEFAULT_MAX_BACKOFF_S
    """The longest such pause; the default does not limit a longer ``backoff_s``."""
    calls: Calls | None = None
    """Set for a map: ``command`` runs ``calls.runner``."""
    preload: Annotated[tuple[str, ...], at_most(MAX_PRELOAD, f"at most {MAX_PRELOAD} modules")] = ()
    """Python modules that each host imports once; the job's tasks there are clones of the process
    that did.
    """
    stop: StopPolicy | None = None
    """How its tasks are stopped; None: TERM, and KILL after the cluster's grace period."""
    terminal: bool = False
    """Its one task reads and writes a terminal, and ends when nobody has been connected to that for
    a while.
    """
    notice: NoticePolicy | None = None
    """What its tasks are told before they are stopped; None: nothing."""
    on_timeout: OnTimeout = "kill"
    """What becomes of a task that has run for ``timeout_s``: it is KILLED, or is requeued."""
    protect_s: Annotated[float, duration(MAX_PROTECT_S, "for example 60")] | None = None
    """A task is not preempted before it has run for so long."""
    project: ProjectPath = ""
    """The project that it is in; empty: that of its parent, else the default of its user, else the
    root. Of an admitted job: the one it got; empty: the root.
    """
    notify: Annotated[
        tuple[NotifyRule, ...], at_most(MAX_NOTIFY, f"at most {MAX_NOTIFY} rules")
    ] = ()
    """Who is told of the job, and when; the notifier acts on it, nothing else does."""

    @property
    def project_path(self) -> str:
        """Of an admitted job, the path of its project."""
        return self.project or ROOT

    @property
    def grows(self) -> bool:
        """Whether calls may be added to the job after its submission."""
        return self.calls is not None and self.calls.idle_s is not None

    @property
    def ends_together(self) -> bool:
        """Whether a killed task ends the others: none of a map does, nor of an array whose tasks
        may all fail.
        """
        return self.calls is None and not (self.array and self.max_task_failures >= self.task_count)

    @property
    def code(self) -> tuple[str, ...]:
        """The digests of all that its tasks get from the bundle store."""
        return code_of(self.bundle, self.calls)

    @property
    def timeout_ms(self) -> int | None:
        return None if self.timeout_s is None else int(self.timeout_s * 1000)

    @property
    def protect_ms(self) -> int:
        return int((self.protect_s or 0) * 1000)

    @property
    def spread_key(self) -> str:
        """What its tasks are spread with: its own tasks, or the other routes of its deployment;
        empty: nothing.
        """
        if self.spread == "none" or self.is_gang:
            return ""
        if self.probe is not None:
            return self.name.rpartition("/")[0]
        return TASKS if self.task_count > 1 or self.grows else ""

    @property
    def index_set(self) -> IndexSet:
        """The indexes of its tasks."""
        return indexes_of(self.indexes, self.replicas)

    @property
    def task_count(self) -> int:
        """How many tasks it has; ``replicas`` is the size of the whole, of which they may be a
        part.
        """
        return len(self.index_set) if self.indexes else self.replicas

    def backoff_ms(self, times: int) -> int:
        """The pause before the next attempt of a task that failed or was requeued ``times`` times
        before; 0: none.
        """
        if self.backoff_s is None:
            return 0
        return int(
            1000
            * min(self.backoff_s * 2.0 ** min(times, 64), max(self.backoff_s, self.max_backoff_s))
        )

    def array_index(self, index: int) -> int | None:
        """The value of a task of an array, ``IRIS_ARRAY_INDEX``; None when the job is none."""
        return indexes_of(self.array, 0)[index] if self.array else None

    @property
    def stop_signal(self) -> int:
        """The number of the signal that stops a task."""
        return signal_number(self.stop.signal if self.stop is not None else "SIGTERM")

    @property
    def ends_late(self) -> bool:
        """Whether a task that is told to stop may still succeed by exit 0: what it ended as is
        judged at its end.
        """
        return self.notice is not None or self.on_timeout == "requeue"

    def grace_ms(self, otherwise_ms: int) -> int:
        """The time between that signal and KILL; ``otherwise_ms``: that of jobs that do not say."""
        if self.stop is None or self.stop.grace_s is None:
            return otherwise_ms
        return int(self.stop.grace_s * 1000)

    @property
    def placement(self) -> tuple[Constraint, ...]:
        """Its constraints, and what follows from its image."""
        wanted = self.environment
        return (
            (*self.constraints, NEEDS_RUNTIME)
            if wanted is not None and wanted.image
            else self.constraints
        )

    @property
    def priority_band(self) -> PriorityBand:
        return PriorityBand[self.band.upper()]

    @property
    def is_gang(self) -> bool:
        return self.coscheduling is not None


def code_of(bundle: str | None, calls: Calls | None) -> tuple[str, ...]:
    """The digests of a bundle and of the files of a map."""
    own = () if bundle is None else (bundle,)
    return own if calls is None else (*own, *calls.digests)
