"""Makes the body of ``POST /v1/jobs`` from the options of a caller, for the CLI and the SDK.

Raises `InvalidOption` for texts that cannot be parsed; the gateway refuses values that are not
allowed. Out of scope: parsing command lines, sending.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from iris.client.decode import from_builtins
from iris.client.options.constraints import FORMS, Mode, parse_constraint
from iris.client.options.job_names import full_name
from iris.client.options.levels import read_levels
from iris.client.options.units import PARSERS, one_or_more, parse_cpu, parse_duration, parse_gpu
from iris.client.problems import InvalidOption
from iris_core.admission.decoder_words import in_words, place_of, with_choices
from iris_core.codec import Undecodable
from iris_core.moments import show_duration
from iris_core.spec import array_values
from iris_core.spec.exit_rules import SIGNALS, ExitAction, ExitRule, signal_number
from iris_core.spec.index_set import IndexSet
from iris_core.spec.jobs import (
    DEFAULT_NOTICE_S,
    Constraint,
    Coscheduling,
    Dependency,
    Environment,
    JobSpec,
    Level,
    NoticePolicy,
    StopPolicy,
    When,
)
from iris_core.spec.notify import NotifyRule
from iris_core.spec.notify import read_rule as read_notify_rule
from iris_core.spec.option_table import JobOptions, TaskOptions, Time, field_of, rows_of
from iris_core.spec.resources import REQUESTED, Device, ResourceRequest

T = TypeVar("T")
CommandLine = list[str] | tuple[str, ...]
"""The words of a command; a plain string is not accepted, because it is a sequence of letters."""

TPU_GROUP = "tpu-name"
_JOB_ID = re.compile(r"j[0-9]{1,18}(@.*)?\Z")
EACH_LINE = ".iris-each-line"
"""The file of a bundle that holds the lines of ``each_line``."""


_PLAIN = tuple(name for name in JobOptions.__annotations__ if name in JobSpec.__struct_fields__)
"""Options that are fields, with the same value unless one is read below."""


class OptionReader:
    """Parses options and collects all mistakes."""

    def __init__(self) -> None:
        self._mistakes: list[str] = []

    def read(self, parse: Callable[[], T], otherwise: T, option: str = "") -> T:
        """The result of ``parse``, or ``otherwise`` after recording why it failed; of an
        ``option``, which is named.
        """
        try:
            return parse()
        except InvalidOption as error:
            self._mistakes += [
                f"{option}: {line}" if option else line for line in str(error).splitlines()
            ]
            return otherwise

    def finish(self) -> None:
        """Raises InvalidOption with one line for each mistake."""
        if self._mistakes:
            raise InvalidOption("\n".join(self._mistakes))


def job_spec(
    command: CommandLine,
    options: JobOptions,
    environ: Mapping[str, str] = os.environ,
    *,
    seed: str = "",
) -> JobSpec:
    """The job that ``options`` describe. ``environ`` shows whether this runs inside a task. Raises
    InvalidOption.

    ``seed``: makes the name of a job that has none; the same seed, the same name.
    """
    reading = OptionReader()
    none: tuple[Device | None, int] = (None, 1)
    no_words: tuple[str, ...] = ()
    no_limit: dict[str, object] = {}
    device, gang = reading.read(lambda: read_device(options), none)
    slices = options.get("slices")
    in_slices = gang > 1 or (device is not None and device.kind == "tpu" and slices is not None)
    group_by = reading.read(lambda: read_levels(options.get("group_by")), None) or (
        TPU_GROUP if in_slices else None
    )
    gang *= slices or 1
    replicas = reading.read(lambda: read_replicas(options, gang), gang)
    given = {key: options[key] for key in _PLAIN if options.get(key) is not None}  # type: ignore[literal-required]
    wanted: dict[str, object] = {
        **given,
        "name": reading.read(lambda: name_of(options, environ, seed), ""),
        "command": reading.read(lambda: read_command(command), no_words),
        "env": read_pairs(options, "env", reading),
        "replicas": replicas,
        "resources": read_resources(options, device, reading),
        "constraints": read_constraints(options, reading),
        "coscheduling": reading.read(lambda: read_coscheduling(options, group_by), None),
        **(times := read_times(options, reading)),
        "stop": reading.read(lambda: read_stop(options), None),
        "notice": reading.read(lambda: read_notice(options.get("notice")), None),
        "ports": read_list(options, "ports", reading),
        "preload": read_list(options, "preload", reading),
        "labels": read_pairs(options, "labels", reading),
        "user": options.get("user") or "",
        "environment": read_environment(options),
        "on_exit": tuple(
            reading.read(partial(read_rule, one), None)
            for one in read_list(options, "on_exit", reading)
        ),
        "notify": tuple(
            reading.read(partial(read_notify, one), None)
            for one in read_list(options, "notify", reading)
        ),
        "each_line": EACH_LINE if options.get("each_line") else "",
        "after": read_after(options, reading),
        **reading.read(
            lambda: read_tolerance(options, replicas, is_gang=group_by is not None), no_limit
        ),
    }
    reading.read(lambda: check_backoff(times), None)
    if given.get("terminal"):
        wanted.setdefault("max_retries_preemption", 0)
    reading.finish()
    try:
        return from_builtins(wanted, JobSpec)
    except Undecodable as error:
        raise InvalidOption(_wrong(str(error))) from None


def _wrong(message: str) -> str:
    """The decoder's message with the option's name: ``replicas must be a whole number, not a
    string``.
    """
    place = place_of(message)
    whose = (
        "a key of "
        if "`key` in `" in message
        else "a value of "
        if place in ("env", "labels")
        else ""
    )
    return with_choices(
        f"{whose}{place.removesuffix('_s')} {in_words(message)}".strip(), JobSpec, place
    )


def read_replicas(options: JobOptions, gang: int) -> int:
    """The number of tasks: as given, or by the values of an array, the lines of a file, the hosts
    of a slice. Raises InvalidOption.
    """
    given = options.get("replicas")
    array = options.get("array")
    file = options.get("each_line")
    if array is None and file is None:
        return gang if given is None else given
    if array is not None and file is not None:
        raise InvalidOption("a task has one value, of array or of each_line: leave one of them out")
    if given is not None:
        raise InvalidOption(
            f"{'each_line' if array is None else 'array'} says how many tasks there are: leave out replicas"
        )
    return len(read_lines(file)) if file is not None else read_array(str(array))


def read_array(array: str) -> int:
    """How many values an array has. Raises InvalidOption."""
    values, percent, limit = array.partition("%")
    if percent:
        raise InvalidOption(
            f"array: {array!r} has a limit: write array {values!r} with max_parallel {limit}"
        )
    try:
        return len(IndexSet.parse(array))
    except ValueError as error:
        raise InvalidOption(f"array: {error}") from None


def read_stop(options: JobOptions) -> StopPolicy | None:
    """How a task is stopped; None when nothing is said of it. Raises InvalidOption."""
    signal = options.get("stop_signal")
    grace = options.get("grace")
    if signal is None and grace is None:
        return None
    return StopPolicy(
        signal=_signal("stop_signal", signal or "SIGTERM"), grace_s=read_time(grace, "grace")
    )


def read_notice(notice: str | None) -> NoticePolicy | None:
    """``USR1@90s``, or ``USR1`` for a minute before. Raises InvalidOption."""
    if notice is None:
        return None
    signal, at, before = notice.partition("@")
    before_s = read_time(before, "notice") if at else DEFAULT_NOTICE_S
    if not signal or before_s is None:
        raise InvalidOption(f"notice: {notice!r} is not SIGNAL@TIME, for example USR1@90s")
    return NoticePolicy(signal=_signal("notice", signal), before_s=before_s)


def _signal(option: str, text: str) -> str:
    """``SIGUSR1``, also of ``USR1``. Raises InvalidOption."""
    try:
        number = signal_number(text)
    except ValueError as error:
        raise InvalidOption(f"{option}: {error}") from None
    return next(name for name, known in SIGNALS.items() if known == number)


def read_rule(rule: str | ExitRule) -> ExitRule:
    """``75,64-78,SIGBUS=requeue``. Raises InvalidOption."""
    if isinstance(rule, ExitRule):
        return rule
    codes, _, action = rule.partition("=")
    if action not in get_args(ExitAction):
        raise InvalidOption(f"on_exit: {rule!r} is not CODES=retry, CODES=requeue or CODES=fail")
    numbers = tuple(int(code) if code.isdigit() else code for code in codes.split(","))
    return ExitRule(numbers, cast(ExitAction, action))


def read_notify(rule: str | NotifyRule) -> NotifyRule:
    """``ops:failed,waiting_1h``. Raises InvalidOption."""
    if isinstance(rule, NotifyRule):
        return rule
    try:
        return read_notify_rule(rule)
    except ValueError as error:
        raise InvalidOption(f"notify: {error}") from None


def read_lines(file: str | os.PathLike[str]) -> list[str]:
    """The lines of a file, one for each task. Raises InvalidOption."""
    try:
        return array_values.values_of(Path(file).read_bytes())
    except OSError as error:
        raise InvalidOption(f"each_line: cannot read {os.fspath(file)}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidOption(f"each_line: {os.fspath(file)}: {error}") from None


def read_tolerance(options: JobOptions, replicas: object, *, is_gang: bool) -> dict[str, object]:
    """How many tasks may fail when all may; nothing without ``keep_going``. Raises
    InvalidOption.
    """
    if not options.get("keep_going"):
        return {}
    if options.get("max_task_failures") is not None:
        raise InvalidOption("keep_going lets all tasks fail: leave out max_task_failures")
    if is_gang:
        raise InvalidOption("a gang ends with its first failed task: leave out keep_going")
    return {"max_task_failures": replicas}


def read_coscheduling(
    options: JobOptions, group_by: str | tuple[Level, ...] | None
) -> Coscheduling | None:
    """The coscheduling of the tasks; None without. Raises InvalidOption."""
    success = options.get("success")
    slices = options.get("slices")
    within = options.get("within")
    if group_by:
        return Coscheduling(
            group_by, success or "all", 1 if slices is None else slices, within or ""
        )
    for given, what in (
        (success, "a success policy"),
        (slices is not None, "slices"),
        (within, "slices within"),
    ):
        if given:
            raise InvalidOption(
                f"only a gang has {what}: specify group_by too, or ask for a slice of several hosts"
            )
    return None


def read_after(options: JobOptions, reading: OptionReader) -> tuple[Dependency, ...]:
    """The jobs to wait for, without invalid ones."""
    each = bool(options.get("each"))
    given = read_list(options, "after", reading)
    if each and not given:
        return reading.read(
            partial(refuse, "each says how to wait for another job: specify after too"), ()
        )
    found = [reading.read(partial(read_dependency, one, each), None) for one in given]
    return tuple(one for one in found if one is not None)


def read_dependency(given: object, each: bool = False) -> Dependency:
    """A job to wait for, of ``train`` or ``train:any``. Raises InvalidOption."""
    if isinstance(given, Dependency):
        return given
    if not isinstance(given, str):
        raise InvalidOption(f"{given!r} is not a job to wait for; write train, or train:any")
    job, colon, when = given.partition(":")
    if not job or (colon and when not in get_args(When)):
        raise InvalidOption(
            f"{given!r} is not JOB or JOB:WHEN; WHEN is one of {', '.join(get_args(When))}"
        )
    return Dependency(
        job if job.startswith("/") or _JOB_ID.match(job) else f"/{job}",
        cast(When, when or "ok"),
        each,
    )


def read_environment(options: TaskOptions) -> Environment | None:
    """What is built or pulled before the tasks start; None: nothing."""
    setup = options.get("setup")
    image = options.get("image") or ""
    packages = options.get("packages", "") if setup is None and not image else ""
    found = Environment(
        packages=packages, setup=setup or "", python=options.get("python") or "", image=image
    )
    return None if found == Environment() else found


def read_command(command: object) -> tuple[str, ...]:
    """The words of a command; one text is not split. Raises InvalidOption."""
    if not isinstance(command, Sequence) or isinstance(command, str | bytes):
        raise InvalidOption(
            f"a command is a list of words, not {command!r}; write for example ['sh', '-c', 'echo hello']"
        )
    return tuple(command)


def name_of(options: JobOptions, environ: Mapping[str, str], seed: str) -> str:
    """The job's whole name. Raises InvalidOption."""
    return full_name(options.get("name"), parent_of(options, environ), seed)


def parent_of(options: JobOptions, environ: Mapping[str, str]) -> str | None:
    """The path of the parent job: as given, or inside a task its own job; a whole path has its own
    parent.
    """
    if options.get("parent"):
        return options["parent"]
    inside = environ.get("IRIS_JOB")
    return inside if inside and not (options.get("name") or "").startswith("/") else None


def read_device(options: TaskOptions) -> tuple[Device | None, int]:
    """The device of one task, and how many tasks a whole slice takes (1 unless a multi-host TPU).

    Raises InvalidOption.
    """
    gpu = options.get("gpu")
    tpu = options.get("tpu")
    if gpu and tpu:
        raise InvalidOption("a task has gpus or a tpu, not both")
    if gpu:
        return parse_gpu(str(gpu)), 1
    return read_tpu(tpu) if tpu else (None, 1)


def read_tpu(variant: str) -> tuple[Device, int]:
    """One host's chips of a slice, and its number of hosts; the gateway refuses a variant that is
    not in the table.
    """
    from iris_core.placement.topology import topology_of  # imported only for slices

    variants = [one.strip() for one in variant.split(",")]
    known = topology_of(variants[0])
    named = one_or_more(variants)
    return (
        (Device("tpu", named, known.chips_per_vm), known.vm_count)
        if known
        else (Device("tpu", named), 1)
    )


def read_resources(
    options: JobOptions, device: Device | None, reading: OptionReader
) -> ResourceRequest:
    return ResourceRequest(**read_amounts(options, reading), device=device)


def read_amounts(options: Mapping[str, object], reading: OptionReader) -> dict[str, int]:
    """The given amounts, by the fields of `ResourceRequest`."""
    given = {
        resource: str(text)
        for resource in REQUESTED
        if (text := options.get(resource.word)) is not None
    }
    found = {
        resource.name: reading.read(partial(PARSERS[resource.unit], text), 0, resource.word)
        for resource, text in given.items()
    }
    if (limit := options.get("cpu_limit")) is not None:
        found["cpu_limit_millis"] = reading.read(partial(parse_cpu, str(limit)), 0, "cpu_limit")
    return found


def read_constraints(options: TaskOptions, reading: OptionReader) -> tuple[Constraint, ...]:
    """Required constraints first, then preferred ones, each in the given order, without invalid
    ones.
    """
    given: list[tuple[str | Constraint, Mode]] = [
        (one, "required") for one in read_list(options, "constraints", reading)
    ]
    given += [(one, "preferred") for one in read_list(options, "prefer", reading)]
    found = [reading.read(partial(_constraint, one, mode), None) for one, mode in given]
    return tuple(one for one in found if one is not None)


def _constraint(given: object, mode: Mode) -> Constraint:
    if isinstance(given, str):
        return parse_constraint(given, mode)
    return (
        given
        if isinstance(given, Constraint)
        else refuse(f"{given!r} is not a constraint; {FORMS}")
    )


def read_list(options: TaskOptions, name: str, reading: OptionReader) -> tuple[Any, ...]:
    """The items of an option that is a list; one text or constraint is refused, because a text is a
    list of letters.
    """
    given = options.get(name) or ()
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return tuple(given)
    return reading.read(
        partial(refuse, f"{name} is a list, not {given!r}; write {name}=[{given!r}]"), ()
    )


def read_pairs(options: TaskOptions, name: str, reading: OptionReader) -> dict[str, str]:
    """An option that is a dictionary."""
    given = options.get(name) or {}
    if isinstance(given, Mapping):
        return dict(given)
    words = f"{name} is a dictionary, not {given!r}; write for example {name}={{'KEY': 'value'}}"
    return reading.read(partial(refuse, words), {})


def refuse(words: str) -> Any:
    """Raise InvalidOption."""
    raise InvalidOption(words)


def read_times(options: JobOptions, reading: OptionReader) -> dict[str, float | None]:
    """The given times that are fields, in seconds."""
    times = {
        row.name: options.get(row.name)
        for row in rows_of(JobOptions, TaskOptions)
        if row.kind == Time
    }
    return {
        field: reading.read(partial(parse_duration, str(given)), None, name)
        for name, given in times.items()
        if given is not None and (field := field_of(JobSpec, name))
    }


def check_backoff(times: Mapping[str, float | None]) -> None:
    """Refuse a longest pause below the first one; admission cannot tell one that is the default
    from none. Raises InvalidOption.
    """
    first = times.get("backoff_s")
    longest = times.get("max_backoff_s")
    if first is not None and longest is not None and longest < first:
        raise InvalidOption(
            f"max_backoff: the longest pause, {show_duration(longest)}, is shorter than the first one, "
            f"{show_duration(first)}; at least {show_duration(first)}, or leave it out"
        )


def read_time(given: float | str | None, option: str) -> float | None:
    """Seconds, or None for no limit. Raises InvalidOption, which names the option."""
    try:
        return None if given is None else parse_duration(str(given))
    except InvalidOption as error:
        raise InvalidOption(f"{option}: {error}") from None
