"""The options of jobs, deployments and pools: the one table of them.

A row is a field of a typed dictionary, with its type and an `Option`: `iris run`, `iris deploy` and
`iris pool` have its flag, the SDK its keyword, refusals and "Copy as" name it, the reference lists
it. Out of scope: what is made of the values (`iris.client.options`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Protocol, TypedDict, get_args, get_type_hints

from iris_core.moments import show_duration
from iris_core.spec.exit_rules import ExitRule
from iris_core.spec.jobs import (
    BandName,
    Constraint,
    Dependency,
    JobSpec,
    Level,
    OnTimeout,
    PackageList,
    Probe,
    Spread,
    SuccessPolicy,
)
from iris_core.spec.notify import NotifyRule
from iris_core.spec.pools import Audience, CapacityKind, PoolSpec, Reservation
from iris_core.spec.resources import REQUESTED, ResourceOptions
from iris_core.spec.serving import DeploymentSpec, ProxyPolicy, ScalingPolicy, UpdatePolicy
from iris_core.units import MOMENT


@dataclass(frozen=True, slots=True)
class Option:
    """What a flag says of itself.

    Attributes:
        help: for people. metavar: the word for its value, `DURATION` of a time.
        flags: short and other names of the flag; without any it is called as the field, as
            ``--max-parallel``.
        fields: those of a specification that it gives, where they are called otherwise:
            ``stop/grace_s``.
        default: what holds without it, where the field's own default does not say.
    """

    help: str
    metavar: str = ""
    flags: str = ""
    fields: str = ""
    default: str = ""


class PathLike(Protocol):
    """A path of a file."""

    def __fspath__(self) -> str: ...


Text = str | None
Number = int | None
Time = float | str | None
Conditions = Sequence[str | Constraint]
Values = Mapping[str, str | int | float | bool | None]


class NoOptions(TypedDict):
    """Options that have no row."""


class TaskOptions(ResourceOptions, total=False):
    """Options of every task, of a job or of a deployment's routes.

    Sizes are bytes or texts like ``4GiB``, ``cpu`` and ``cpu_limit`` cores; times are seconds or
    texts like ``10m``. ``user`` is by default the token's, else the calling one. ``packages``: the
    file of the bundle that lists packages, found when a ``workdir`` is sent; they are installed
    unless ``setup`` does that instead, or is empty.
    """

    user: Annotated[Text, Option("Owner of the job.", "USER")]
    project: Annotated[
        Text,
        Option(
            "Project of the job, for example /research/nlp.",
            "PATH",
            default="the parent's, else the owner's, else /",
        ),
    ]
    cpu_limit: Annotated[
        float | str | None,
        Option(
            "Maximum number of processors of one task.",
            "N",
            fields="resources/cpu_limit_millis",
            default="no limit",
        ),
    ]
    gpu: Annotated[
        str | int | None,
        Option(
            "GPUs of one task, for example H100x8, or H100x8,A100x8 for either.",
            "GPU",
            fields="resources/device/variant",
        ),
    ]
    tpu: Annotated[
        Text,
        Option(
            "A TPU slice, for example v5litepod-16, or several names for any of them; one task on each of its hosts.",
            "TPU",
        ),
    ]
    constraints: Annotated[
        Conditions,
        Option(
            "Hard constraint on hosts: key=v, key!=v, key, !key, key>=3, 'key in a,b'.",
            "COND",
            "-c --constraint",
        ),
    ]
    prefer: Annotated[
        Conditions, Option("Soft constraint on hosts (preferred, not required).", "COND")
    ]
    band: Annotated[BandName, Option("Priority band of the job.")]
    env: Annotated[
        Mapping[str, str],
        Option(
            "Environment variable KEY=VALUE, or KEY for its value in this shell.",
            "KEY[=V]",
            "-e --env",
        ),
    ]
    bundle: str | None
    packages: PackageList
    setup: Annotated[
        Text,
        Option(
            "Build the environment with this shell command instead, run in a copy of the workdir; '' builds none.",
            "COMMAND",
        ),
    ]
    python: Annotated[
        Text, Option("The environment's version of Python, for example 3.12.", "VERSION")
    ]
    image: Annotated[
        Text, Option("Run tasks in a container of this image; nothing is installed in it.", "REF")
    ]
    spread: Annotated[
        Spread | None, Option("Place tasks over several hosts, or with none on as few as possible.")
    ]
    labels: Annotated[
        Mapping[str, str], Option("Label stored with the job.", "KEY=VALUE", "-l --label")
    ]


class JobOptions(TaskOptions, total=False):
    """The options of a job, each as in ``iris run``; omitted ones have their defaults.

    ``parent``: inside a task the task's own job, unless ``name`` has a leading slash. ``after``:
    each job as ``train``, or ``train:any`` and so on. What waits with ``hold`` is started by
    `release`; a ``terminal`` is used by a `RemoteTerminal`, and its task is not started again
    unless ``max_retries_preemption`` says so.
    """

    name: Annotated[Text, Option("Name of the job.", "NAME", default="a generated one")]
    parent: Annotated[Text, Option("Make it a child of this job.", "JOB")]
    replicas: Annotated[
        Number, Option("Number of tasks.", flags="-r --replicas", default="1, or the slice's hosts")
    ]
    array: Annotated[
        Text,
        Option("A task for each of these values, 0-15:4,20, found in IRIS_ARRAY_INDEX.", "VALUES"),
    ]
    each_line: Annotated[
        str | PathLike | None,
        Option("A task for each line of this file, found in IRIS_ARRAY_VALUE.", "FILE"),
    ]
    preload: Annotated[
        Sequence[str],
        Option(
            "Import these modules once on each host; each task of `python FILE` is cloned from that.",
            "MODULES",
        ),
    ]
    max_parallel: Annotated[
        Number, Option("Tasks of the job that run at a time.", "N", default="all")
    ]
    group_by: Annotated[
        str | Sequence[str | Level] | None,
        Option(
            "Place all tasks together on hosts that share this attribute. Repeat it for levels of the topology, "
            "innermost first; KEY:preferred asks for as few values as possible.",
            "KEY",
            fields="coscheduling coscheduling/group_by",
        ),
    ]
    slices: Annotated[
        Number, Option("TPU slices, or groups of --group-by, to place together.", "N")
    ]
    within: Annotated[
        Text, Option("Place slices where they share this attribute, for example zone.", "KEY")
    ]
    success: Annotated[
        SuccessPolicy | None, Option("Members whose exit 0 ends a gang.", default="all")
    ]
    output: Annotated[
        Text,
        Option(
            "Keep this directory, below each task's own, when the task has ended, for `iris fetch`. Its path is in "
            "IRIS_OUTPUT.",
            "DIR",
        ),
    ]
    max_retries_failure: Annotated[int, Option("Failures of a task that are retried.")]
    max_retries_preemption: Annotated[int, Option("Preemptions and lost hosts that are retried.")]
    max_task_failures: Annotated[
        int, Option("Failed tasks that do not fail the job; 0 for a gang.")
    ]
    keep_going: Annotated[
        bool, Option("All tasks may fail: none is killed because another failed.")
    ]
    on_exit: Annotated[
        Sequence[str | ExitRule],
        Option(
            "What other exit codes than 0 mean: retry, requeue (not counted as a failure) or fail: 75,64-78=requeue.",
            "CODES=WORD",
        ),
    ]
    notify: Annotated[
        Sequence[str | NotifyRule],
        Option(
            "Tell a target of the job: NAME:failed,succeeded,started,ended,waiting_1h,time_80 (see `iris notify`).",
            "NAME:WORDS",
        ),
    ]
    max_requeues: Annotated[int, Option("Requeues of a task at its own request.")]
    backoff: Annotated[Time, Option("Pause before a task is tried again, doubled each time: 10s.")]
    max_backoff: Annotated[Time, Option("Longest such pause.")]
    stop_signal: Annotated[
        Text,
        Option("Signal that stops a task: INT.", "SIGNAL", fields="stop/signal", default="TERM"),
    ]
    grace: Annotated[
        Time,
        Option(
            "Time between that signal and KILL, at most 1h: 60s.",
            fields="stop/grace_s",
            default="5s",
        ),
    ]
    notice: Annotated[
        Text,
        Option(
            "Signal so long before the time limit, and before a preemption, a drain or the end of the host: USR1@90s, "
            "or USR1@90. "
            "IRIS_NOTICE_FILE says why.",
            "SIGNAL@DURATION",
            fields="notice/signal notice/before_s",
        ),
    ]
    on_timeout: Annotated[OnTimeout, Option("What to do with a task at its time limit.")]
    protect: Annotated[Time, Option("Preempt no task before it has run for this: 10m.")]
    scheduling_timeout: Annotated[
        Time, Option("Fail the job if it has not started after this: 10m.")
    ]
    timeout: Annotated[Time, Option("Kill, or requeue, a task that runs longer: 2h.")]
    after: Annotated[
        Sequence[str | Dependency],
        Option(
            "Wait until this job has succeeded; :any until it has ended, :notok until it has ended without success, "
            ":start until it runs.",
            "JOB[:WHEN]",
        ),
    ]
    each: Annotated[bool, Option("Each task waits for the task in its place of the --after job.")]
    not_before: Annotated[
        Text, Option("Start no task before this: 8h, or 2026-03-01T22:00:00Z.", MOMENT)
    ]
    singleton: Annotated[
        Text, Option("Wait until your earlier jobs with this key have ended.", "KEY")
    ]
    terminal: Annotated[
        bool,
        Option(
            "Use the task from this terminal, and end it with that; without a COMMAND it is your shell.",
            flags="-i -t --interactive",
        ),
    ]
    hold: Annotated[bool, Option("Start no task before the job is released.")]
    ports: Annotated[
        Sequence[str],
        Option("Reserve a free port; its number is in IRIS_PORT_<NAME>.", "NAME", "--port"),
    ]


class DeployOptions(TaskOptions, total=False):
    """The options of a deployment, each as in ``iris deploy create``.

    ``probe_command``: words, or one text that is split as a shell does.
    """

    ports: Annotated[
        Sequence[str],
        Option("A port in IRIS_PORT_<NAME>; the first serves.", "NAME", "--port", default="http"),
    ]
    replicas: Annotated[Number, Option("Number of routes.", flags="-r --replicas")]
    probe_path: Annotated[Text, Option("Healthy while this answers 200 to 399.", "PATH")]
    probe_ready_path: Annotated[
        Text, Option("While this fails a route gets no requests and is kept.", "PATH")
    ]
    probe_tcp: Annotated[
        bool, Option("Healthy while its port accepts connections.", fields="probe/kind")
    ]
    probe_command: Annotated[
        str | Sequence[str] | None,
        Option("Healthy while this, run as the task, exits 0.", "COMMAND"),
    ]
    probe_interval: Annotated[Time, Option("Interval between probes.")]
    probe_timeout: Annotated[Time, Option("Timeout of one probe.")]
    probe_initial_delay: Annotated[Time, Option("Delay before the first probe.")]
    probe_failures: Annotated[Number, Option("Failures in a row that make it unhealthy.")]
    probe_passes: Annotated[Number, Option("Passes in a row that make it healthy.")]
    probe_grace: Annotated[Time, Option("An unhealthy route is replaced after this.")]
    start_timeout: Annotated[Time, Option("Time from its start to the first pass.")]
    max_surge: Annotated[
        int | str | None, Option("Routes above --replicas in an update: 1, 25%.", "N")
    ]
    max_unavailable: Annotated[
        int | str | None, Option("Routes below it in an update: 1, 25%.", "N")
    ]
    min_ready: Annotated[Time, Option("A new route counts after this long healthy.")]
    progress_deadline: Annotated[Time, Option("An update without progress has failed after this.")]
    pause_after: Annotated[Number, Option("Pause an update after this number of new routes.")]
    rollback: Annotated[bool | None, Option("Roll back when an update fails.", default="roll back")]
    settle: Annotated[Time, Option("Time from its removal from discovery to TERM.")]
    grace: Annotated[Time, Option("Time from TERM to KILL.")]
    retry: Annotated[
        Literal["never", "idempotent"] | None,
        Option("Whether requests that a route may have begun go to another one."),
    ]
    forward_authorization: Annotated[
        bool | None, Option("Routes receive Authorization, also tokens of Iris.", default="no")
    ]
    min_replicas: Annotated[
        Number, Option("Scale by rule: minimum number of routes.", "", "--min", "scaling/minimum")
    ]
    max_replicas: Annotated[
        Number, Option("Scale by rule: maximum number of routes.", "", "--max", "scaling/maximum")
    ]
    target_outstanding: Annotated[
        float | None,
        Option("Target: outstanding requests for each route.", fields="scaling/outstanding"),
    ]
    scale_query: Annotated[
        Text,
        Option(
            "Scale by the value of a Prometheus query instead.", "QUERY", fields="scaling/query"
        ),
    ]
    target_per_route: Annotated[
        float | None, Option("Target: that value for each route.", fields="scaling/per_route")
    ]
    stabilization: Annotated[Time, Option("Scale down only after this.")]
    cooldown: Annotated[Time, Option("The number at most doubles within this.")]
    scale_window: Annotated[
        Time, Option("The load is its mean over this.", fields="scaling/window_s")
    ]
    panic_window: Annotated[Time, Option("Window that detects a sudden rise.")]
    no_scaling: Annotated[bool, Option("Remove the rule; --replicas sets the number.")]


class PoolOptions(TypedDict, total=False):
    """The options of a pool, each as in ``iris pool set``; omitted ones stay as they are, in a new
    pool as the default says.

    ``provider_options``, ``attributes``: a dictionary, of which the given keys change; None takes one away.
    ``tpu``: also sets the hosts and the chips of a slice.
    """

    provider: Annotated[Text, Option("What makes its slices: process, exec or tpu.", "WORD")]
    provider_options: Annotated[
        Values,
        Option(
            "An option of the provider; numbers, true and false are such unless quoted. Without a value it is taken "
            "away.",
            "KEY=VALUE",
            "--option",
            "options",
        ),
    ]
    hosts: Annotated[Number, Option("Hosts of one slice.", "N")]
    cpu: Annotated[
        float | str | None,
        Option("Processors of each host, for example 8.", "N", fields="resources"),
    ]
    memory: Annotated[
        int | str | None,
        Option("Memory of each host, for example 16GiB.", "SIZE"),
    ]
    disk: Annotated[
        int | str | None,
        Option("Disk of each host, for example 100GiB.", "SIZE"),
    ]
    tpu: Annotated[
        Text,
        Option(
            "A slice is this TPU slice, for example v5litepod-16.",
            "TPU",
            fields="resources/chips attributes/device-variant attributes/device-type",
        ),
    ]
    gpu: Annotated[
        Text,
        Option(
            "GPUs of each host, for example H100x8.",
            "GPU",
            fields="resources/chips attributes/device-variant attributes/device-type",
        ),
    ]
    attributes: Annotated[
        Values,
        Option(
            "An attribute that each host will have. Without a value it is taken away.",
            "KEY=VALUE",
            "--attribute",
        ),
    ]
    capacity: Annotated[CapacityKind | None, Option("How the provider sells it.")]
    min: Annotated[Number, Option("Slices that are always kept.", "N")]
    max: Annotated[Number, Option("Slices that there are at most; a new pool needs it.", "N")]
    buffer: Annotated[Number, Option("Idle or coming slices beyond what is needed.", "N")]
    priority: Annotated[
        Number, Option("The pool with the lowest is asked first; of equal ones the cheapest.", "N")
    ]
    price: Annotated[float | None, Option("Price of a slice for an hour.", "F")]
    idle: Annotated[Time, Option("A slice without work for longer is given back.")]
    boot_timeout: Annotated[Time, Option("A slice that takes longer to come is given up.")]
    create_rate: Annotated[Number, Option("Slices that are asked for in a minute.", "N")]
    delete_rate: Annotated[Number, Option("Slices that are given back in a minute.", "N")]
    reservation: Annotated[
        str | Reservation | None,
        Option(
            "Capacity bought in advance, and its chips, which all pools that name it share; none: without one.",
            "NAME=CHIPS",
            fields="reservation/name reservation/chips",
        ),
    ]
    only: Annotated[
        Audience | None,
        Option(
            "Work that its slices are made for: such that asks for a device, or any.",
            default="device where hosts have one",
        ),
    ]


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One row: the keyword of the SDK, the type of its value, what its flag says, and what holds
    without it.
    """

    name: str
    kind: Any
    option: Option
    default: str = ""

    @property
    def help(self) -> str:
        """What the flag says, with the default."""
        return (
            f"{self.option.help}  [default: {self.default}]" if self.default else self.option.help
        )

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(self.option.flags.split()) or (f"--{self.name.replace('_', '-')}",)


_PARTS = {
    "": DeploymentSpec,
    "probe": Probe,
    "update": UpdatePolicy,
    "scaling": ScalingPolicy,
    "proxy": ProxyPolicy,
}


def field_of(kind: Any, name: str) -> str:
    """The field of a struct that an option gives: of the same name, or a time in seconds; empty:
    none.
    """
    return next((one for one in (name, f"{name}_s") if one in kind.__struct_fields__), "")


def deployment_field(row: OptionRow) -> tuple[str, str]:
    """The part of a deployment and its field that an option gives: ``probe`` and ``timeout_s``;
    both empty: neither.
    """
    if row.option.fields:
        part, _, field = row.option.fields.rpartition("/")
        return part, field
    for part, kind in _PARTS.items():
        own = row.name.removeprefix(f"{part}_")
        if field := field_of(kind, own):
            return part, field
    return "", ""


def _default(options: Any, row: OptionRow) -> str:
    """What holds without an option: as its row says, else the default of its field; empty:
    nothing.
    """
    if row.option.default or row.kind is bool:
        return row.option.default
    kind: Any = PoolSpec if options is PoolOptions else JobSpec
    part, field = "", field_of(kind, row.name)
    if options is DeployOptions:
        part, field = deployment_field(row)
        kind = _PARTS.get(part, JobSpec)
    defaults = zip(
        reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False
    )
    value: Any = dict(defaults).get(field)
    if type(value) not in (str, int, float):
        return ""
    return (
        show_duration(value)
        if row.kind == Time
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


@cache
def rows_of(options: Any, but: Any = ResourceOptions) -> tuple[OptionRow, ...]:
    """The rows of a typed dictionary that have a flag, without those of another one."""
    hints = get_type_hints(options, include_extras=True)
    own = {name: get_args(hint) for name, hint in hints.items() if name not in but.__annotations__}
    rows = [
        OptionRow(name, *parts)
        for name, parts in own.items()
        if parts and isinstance(parts[-1], Option)
    ]
    return tuple(replace(row, default=_default(options, row)) for row in rows)


def pool_rows() -> tuple[OptionRow, ...]:
    """The rows of pools, whose amounts are those of a host."""
    return rows_of(PoolOptions, NoOptions)


@cache
def field_words() -> dict[str, str]:
    """The options that may give a field of a specification, of those that are called otherwise."""
    words = {f"resources/{resource.name}": resource.word for resource in REQUESTED}
    for row in (*rows_of(JobOptions), *rows_of(DeployOptions), *pool_rows()):
        for field in row.option.fields.split():
            words[field] = " ".join(dict.fromkeys([*words.get(field, "").split(), row.name]))
    return words
